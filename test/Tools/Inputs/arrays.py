"""Writes the arrays of a test into the folder given: `arrays.py FOLDER`."""

import sys

import numpy

folder = sys.argv[1]
numpy.save(f"{folder}/x.npy", numpy.arange(6, dtype="f4").reshape(2, 3))
numpy.save(f"{folder}/fortran.npy", numpy.asfortranarray(numpy.arange(6, dtype="f4").reshape(2, 3)))
numpy.save(f"{folder}/doubles.npy", numpy.arange(6, dtype="f8").reshape(2, 3))
numpy.save(f"{folder}/complex.npy", numpy.zeros((2, 3), "c8"))
numpy.save(f"{folder}/y.npy", numpy.ones((3, 2), "f4"))
# Keys of ones: every weight is one over the valid length, so the output is the mean of the valid values.
numpy.save(f"{folder}/q.npy", numpy.ones((2, 1, 2), "f4"))
numpy.save(f"{folder}/k.npy", numpy.ones((2, 10, 2), "f4"))
numpy.save(f"{folder}/v.npy", numpy.tile(numpy.arange(40, dtype="f4").reshape(1, 10, 4), (2, 1, 1)))
numpy.save(f"{folder}/valid.npy", numpy.array([2, 6], "i4"))
