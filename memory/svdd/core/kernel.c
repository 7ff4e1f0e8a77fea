/* The shifted Gaussian kernel, the score and the gradient in working and in extended precision. */
#include "svdd.h"
#include <math.h>

double svdd_kernel(const Svdd *s, const double *p, const double *q) {
  double distance = 0.0;
  for (int j = 0; j < s->d; j++) {
    double gap = p[j] - q[j];
    distance += gap * gap;
  }
  return expm1(-distance * s->inv_s2);
}

static double field(const Svdd *s, const double *key) {
  double total = 0.0;
  for (int i = 0; i < s->n; i++)
    if (s->a[i] != 0.0) total += s->a[i] * svdd_kernel(s, key, s->x + (size_t)i * s->d);
  return total;
}

double svdd_gradient_at(const Svdd *s, const double *key) { return s->r + 2.0 * field(s, key); }

/* 2 sum a kappa - rho = 2 + 2 sum a k - (r - 1); the small terms are added first so that narrow ranges keep their digits. */
void svdd_score(const Svdd *s, const double *queries, int count, double *out) {
  for (int q = 0; q < count; q++) out[q] = 3.0 + (2.0 * field(s, queries + (size_t)q * s->d) - s->r);
}

/* a_i kappa(q, x_i) per location, row by row: what the readout averages values with. */
void svdd_weights(const Svdd *s, const double *queries, int count, double *out) {
  for (int q = 0; q < count; q++)
    for (int i = 0; i < s->n; i++) {
      double weight = 0.0;
      if (s->a[i] != 0.0) {
        double distance = 0.0;
        for (int j = 0; j < s->d; j++) {
          double gap = queries[(size_t)q * s->d + j] - s->x[(size_t)i * s->d + j];
          distance += gap * gap;
        }
        weight = s->a[i] * exp(-distance * s->inv_s2);
      }
      out[(size_t)q * s->n + i] = weight;
    }
}

/* g = r + 2 sum a k in long double from the keys alone, mass restored to exactly 1 on the heaviest location. */
void svdd_exact_gradient(int n, int d, const double *x, const double *a, double sigma, int count, const double *queries, double r,
                         double *out) {
  long double mass = 0.0L, s2 = (long double)sigma * sigma;
  int heaviest = 0;
  for (int i = 0; i < n; i++) {
    mass += a[i];
    if (a[i] > a[heaviest]) heaviest = i;
  }
  for (int q = 0; q < count; q++) {
    long double total = 0.0L;
    for (int i = 0; i < n; i++) {
      if (a[i] == 0.0) continue;
      long double distance = 0.0L, weight = a[i] + (i == heaviest ? 1.0L - mass : 0.0L);
      for (int j = 0; j < d; j++) {
        long double gap = (long double)queries[(size_t)q * d + j] - x[(size_t)i * d + j];
        distance += gap * gap;
      }
      total += weight * expm1l(-distance / s2);
    }
    out[q] = (double)(r + 2.0L * total);
  }
}
