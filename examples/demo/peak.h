/*===- peak.h - The most float32 operations this processor can do -*- C -*-===*/

#ifndef DEMO_PEAK_H
#define DEMO_PEAK_H

/* Fused multiply-adds per second on `threads` threads at once, counted as two operations each: what no kernel can
 * exceed. Takes about a tenth of a second. */
double peak_flops(int threads);

/* Seconds on a clock that never jumps. */
double now(void);

#endif /* DEMO_PEAK_H */
