/* The shifted Gaussian kernel, the score and the gradient in working and in extended precision. */
#include "svdd.h"
#include <math.h>

/* Wider vectors where the processor has them. Only elementwise loops carry this mark, so every width gives the same bits. */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WIDE
#endif

double svdd_kernel(const Svdd *s, const double *p, const double *q) {
  double distance = 0.0;
  for (int j = 0; j < s->d; j++) {
    double gap = p[j] - q[j];
    distance += gap * gap;
  }
  return expm1(-distance * s->inv_s2);
}

/* out += sum of weight * kernel row, added in the order of the list; four rows a pass keep out in registers. */
WIDE void svdd_add_rows(const Svdd *s, int count, const int *which, const double *weight, double *restrict out) {
  size_t room = (size_t)s->room;
  int n = s->n, p = 0;
  for (; p + 4 <= count; p += 4) {
    const double *k0 = s->k + (size_t)which[p] * room, *k1 = s->k + (size_t)which[p + 1] * room;
    const double *k2 = s->k + (size_t)which[p + 2] * room, *k3 = s->k + (size_t)which[p + 3] * room;
    double w0 = weight[p], w1 = weight[p + 1], w2 = weight[p + 2], w3 = weight[p + 3];
    for (int i = 0; i < n; i++) {
      double sum = out[i];
      sum += w0 * k0[i];
      sum += w1 * k1[i];
      sum += w2 * k2[i];
      sum += w3 * k3[i];
      out[i] = sum;
    }
  }
  for (; p < count; p++) {
    const double *row = s->k + (size_t)which[p] * room;
    for (int i = 0; i < n; i++) out[i] += weight[p] * row[i];
  }
}

WIDE void svdd_add_scaled(int n, double factor, const double *restrict x, double *restrict out) {
  for (int i = 0; i < n; i++) out[i] += factor * x[i];
}

static double field(const Svdd *s, const double *key) {
  double total = 0.0;
  for (int i = 0; i < s->n; i++)
    if (s->a[i] != 0.0) total += s->a[i] * svdd_kernel(s, key, s->x + (size_t)i * s->d);
  return total;
}

double svdd_gradient_at(const Svdd *s, const double *key) { return s->r + 2.0 * field(s, key); }

void svdd_gradients_at(const Svdd *s, const double *queries, int count, double *out) {
  for (int q = 0; q < count; q++) out[q] = svdd_gradient_at(s, queries + (size_t)q * s->d);
}

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
