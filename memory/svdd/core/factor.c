/* The Cholesky factor of the margin's feature differences: append, drop, solve. L has m - 1 rows. */
#include "svdd.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double *row_of(const Svdd *s, int i) { return s->L + (size_t)i * s->margin_room; }

static double entry(const Svdd *s, int i, int j, int ref) {
  size_t room = (size_t)s->room;
  return s->k[(size_t)i * room + (size_t)j] - s->k[(size_t)i * room + (size_t)ref] - s->k[(size_t)ref * room + (size_t)j];
}

/* A pivot below this is rounding: the key counts as an affine combination of the members. A key left out for that reason can
 * violate its condition by at most 2 * pivot * cap, which is inside the tolerance of the state. */
double svdd_dependence(const Svdd *s) { return (4.0 + s->m) * 0x1p-51 * s->scale; }

static void forward_solve(Svdd *s, double *y) {
  for (int i = 0; i + 1 < s->m; i++) {
    const double *row = row_of(s, i);
    double value = y[i];
    for (int j = 0; j < i; j++) value -= row[j] * y[j];
    y[i] = value / row[i];
  }
}

static void backward_solve(Svdd *s, double *z) {
  for (int i = s->m - 2; i >= 0; i--) {
    const double *row = row_of(s, i);
    double value = z[i] / row[i];
    z[i] = value;
    for (int j = 0; j < i; j++) z[j] -= row[j] * value;
  }
}

/* Squared distance of c from the affine hull of the members; leaves L y = h_c in s->y. */
double svdd_pivot(Svdd *s, int c) {
  int ref = s->members[0];
  double pivot = entry(s, c, c, ref);
  for (int i = 0; i + 1 < s->m; i++) s->y[i] = entry(s, s->members[i + 1], c, ref);
  forward_solve(s, s->y);
  for (int i = 0; i + 1 < s->m; i++) pivot -= s->y[i] * s->y[i];
  return pivot;
}

/* beta of MATH 1.1 from s->y: how the members' mass moves per unit of mass given to the key of the last pivot. */
void svdd_back_solve(Svdd *s) {
  for (int i = 0; i + 1 < s->m; i++) s->beta[i + 1] = -s->y[i];
  backward_solve(s, s->beta + 1);
  s->beta[0] = -1.0;
  for (int i = 1; i < s->m; i++) s->beta[0] -= s->beta[i];
}

/* The change of the members' mass that makes 2 K a equal on all of them again, the total moving by deficit: s->y holds the
 * differences of 2 K a to the reference; the answer is left in s->beta. */
void svdd_correction(Svdd *s, double deficit) {
  int ref = s->members[0];
  for (int i = 0; i + 1 < s->m; i++)
    s->beta[i + 1] = -0.5 * s->y[i] - deficit * s->k[(size_t)s->members[i + 1] * s->room + (size_t)ref];
  forward_solve(s, s->beta + 1);
  backward_solve(s, s->beta + 1);
  s->beta[0] = deficit;
  for (int i = 1; i < s->m; i++) s->beta[0] -= s->beta[i];
}

/* c becomes the last member; s->y must hold its row. */
int svdd_append(Svdd *s, int c, double pivot) {
  if (svdd_reserve_margin(s, s->m + 1)) return SVDD_NO_MEMORY;
  if (s->m > 0) {
    double *row = row_of(s, s->m - 1);
    memcpy(row, s->y, sizeof(double) * (size_t)(s->m - 1));
    row[s->m - 1] = sqrt(pivot);
  }
  s->members[s->m++] = c;
  s->status[c] = MARGIN;
  return SVDD_OK;
}

/* Givens rotations restore the triangle after row p has gone. */
static void close_gap(Svdd *s, int p) {
  int rows = s->m - 2;
  for (int i = p; i < rows; i++)
    memcpy(row_of(s, i), row_of(s, i + 1), sizeof(double) * (size_t)(i + 2));
  for (int j = p; j < rows; j++) {
    double c = row_of(s, j)[j], t = row_of(s, j)[j + 1], length = hypot(c, t);
    c /= length, t /= length;
    for (int i = j; i < rows; i++) {
      double *row = row_of(s, i), u = row[j], v = row[j + 1];
      row[j] = c * u + t * v;
      row[j + 1] = c * v - t * u;
    }
  }
}

/* Takes the member at a position out of the factor; its status is the caller's business. */
int svdd_drop(Svdd *s, int position) {
  if (position > 0 && s->m > 1) close_gap(s, position - 1);
  memmove(s->members + position, s->members + position + 1, sizeof(int) * (size_t)(s->m - 1 - position));
  s->m--;
  return position == 0 && s->m > 1 ? svdd_refactor(s) : SVDD_OK;
}

/* Factor from the kernel entries; members that have become dependent are set aside and exchanged in again. */
int svdd_refactor(Svdd *s) {
  int count = s->m, aside = 0, status = SVDD_OK;
  int *waiting = malloc(sizeof(int) * (size_t)(count + 1));
  if (!waiting) return SVDD_NO_MEMORY;
  memcpy(waiting, s->members, sizeof(int) * (size_t)count);
  s->m = 0;
  for (int i = 0; i < count; i++) {
    int c = waiting[i];
    double pivot = s->m ? svdd_pivot(s, c) : 1.0;
    if (pivot > svdd_dependence(s)) {
      svdd_append(s, c, pivot);
    } else {
      s->status[c] = MOVING;
      waiting[aside++] = c;
    }
  }
  for (int i = 0; i < aside && !status; i++) status = svdd_join(s, waiting[i], 1);
  free(waiting);
  return status;
}
