/* Keeping a state right: gradients from the masses, the margin solved again, checks, repair, and a solve from scratch. */
#include "svdd.h"
#include <math.h>

enum { REFRESH_EVERY = 64, POLISH_ROUNDS = 2, REPAIR_ROUNDS = 8 };

/* Locations with mass, and that mass, into the pass lists. */
static int list_active(Svdd *s) {
  int active = 0;
  for (int i = 0; i < s->n; i++) {
    if (s->a[i] == 0.0) continue;
    s->list[active] = i;
    s->list_weight[active++] = s->a[i];
  }
  return active;
}

/* 2 K a for one location over the listed ones; four partial sums, always the same four. */
static double field_at(const Svdd *s, int i, int active) {
  const double *row = s->k + (size_t)i * (size_t)s->room, *weight = s->list_weight;
  const int *list = s->list;
  double sum[4] = {0.0, 0.0, 0.0, 0.0};
  int j = 0;
  for (; j + 4 <= active; j += 4) {
    sum[0] += row[list[j]] * weight[j];
    sum[1] += row[list[j + 1]] * weight[j + 1];
    sum[2] += row[list[j + 2]] * weight[j + 2];
    sum[3] += row[list[j + 3]] * weight[j + 3];
  }
  for (; j < active; j++) sum[j % 4] += row[list[j]] * weight[j];
  return 2.0 * ((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

static double mass_of(const Svdd *s, int active) {
  double total = 0.0;
  for (int j = 0; j < active; j++) total += s->list_weight[j];
  return total;
}

/* rho convention when no coefficient lies strictly inside its box: the upper end of the interval, min over a > 0 of h. */
static void take_upper_rho(Svdd *s) {
  double highest = -INFINITY;
  for (int i = 0; i < s->n; i++)
    if (s->a[i] > 0.0 && s->g[i] > highest) highest = s->g[i];
  s->r -= highest;
  for (int i = 0; i < s->n; i++) s->g[i] -= highest;
}

/* 2 K a for every location, into g. */
void svdd_gradients(Svdd *s) {
  int active = list_active(s);
  for (int j = 0; j < active; j++) s->list_weight[j] *= 2.0;
  for (int i = 0; i < s->n; i++) s->g[i] = 0.0;
  svdd_add_rows(s, active, s->list, s->list_weight, s->g);
}

/* Every g from the masses and the kernel; r from the margin, or by the convention where the margin is empty. */
void svdd_refresh(Svdd *s) {
  svdd_gradients(s);
  s->r = 0.0;
  if (s->m == 0) {
    take_upper_rho(s);
    return;
  }
  for (int p = 0; p < s->m; p++) s->r -= s->g[s->members[p]] / s->m;
  for (int i = 0; i < s->n; i++) s->g[i] += s->r;
}

/* The longest part of the correction that keeps every member in its box; *blocking is the member that stops it, or -1. */
static double admissible_part(const Svdd *s, int *blocking) {
  double part = 1.0;
  *blocking = -1;
  for (int p = 0; p < s->m; p++) {
    int i = s->members[p];
    double target = s->a[i] + s->beta[p], limit = target < 0.0 ? s->a[i] / -s->beta[p] : 1.0;
    if (target > s->cap[i]) limit = (s->cap[i] - s->a[i]) / s->beta[p];
    if (limit < part) part = fmax(limit, 0.0), *blocking = p;
  }
  return part;
}

/* Solves the margin again from the masses of all others; a member that would leave its box leaves the margin instead. */
int svdd_polish(Svdd *s) {
  for (int round = 0; round < POLISH_ROUNDS && s->m > 0;) {
    int blocking, active = list_active(s);
    double at_reference = field_at(s, s->members[0], active);
    for (int p = 1; p < s->m; p++) s->y[p - 1] = field_at(s, s->members[p], active) - at_reference;
    svdd_correction(s, 1.0 - mass_of(s, active));
    double part = admissible_part(s, &blocking);
    for (int p = 0; p < s->m; p++) s->a[s->members[p]] += part * s->beta[p];
    if (blocking < 0) {
      round++;
      continue;
    }
    svdd_leave(s, blocking, s->beta[blocking] > 0.0 ? BOUND : RESERVE);
    int status = svdd_drop(s, blocking);
    if (status) return status;
  }
  return SVDD_OK;
}

double svdd_violation(const Svdd *s, int i) {
  if (s->cap[i] == 0.0) return 0.0;
  if (s->status[i] == RESERVE) return -s->g[i];
  if (s->status[i] == BOUND) return s->g[i];
  double outside = fmax(-s->a[i], s->a[i] - s->cap[i]);
  return fmax(fabs(s->g[i]), outside * s->scale);
}

double svdd_worst(const Svdd *s) {
  double worst = 0.0;
  for (int i = 0; i < s->n; i++) worst = fmax(worst, svdd_violation(s, i));
  return worst;
}

/* A lone member holds what the bound locations leave. Where 1/C is an integer that is a whole number of caps, which counting
 * gives exactly and summing does not. */
static void count_lone_member(Svdd *s) {
  double left = s->full;
  if (s->m != 1 || left != nearbyint(left)) return;
  for (int i = 0; i < s->n; i++)
    if (s->status[i] == BOUND) left -= s->mult[i];
  int i = s->members[0];
  s->a[i] = left >= s->mult[i] ? s->cap[i] : left <= 0.0 ? 0.0 : left * s->C;
}

/* Members that ended exactly on an edge of their box are no margin; rho follows its convention when none is left. */
static int shed_edges(Svdd *s) {
  count_lone_member(s);
  for (int p = s->m - 1; p >= 0; p--) {
    int i = s->members[p];
    if (s->a[i] > 0.0 && s->a[i] < s->cap[i]) continue;
    svdd_leave(s, p, s->a[i] > 0.0 ? BOUND : RESERVE);
    int status = svdd_drop(s, p);
    if (status) return status;
    if (p > s->m) p = s->m;
  }
  if (s->m == 0) take_upper_rho(s);
  return SVDD_OK;
}

static int thaw(Svdd *s) {
  int left = 0;
  for (int i = 0; i < s->n; i++) {
    if (s->frozen[i] && svdd_violation(s, i) <= svdd_tolerance(s)) s->frozen[i] = 0;
    left += s->frozen[i];
  }
  return left;
}

/* Locations that violate their condition are frozen, out of every event test, and released one at a time. */
static int settle(Svdd *s) {
  double tolerance = svdd_tolerance(s);
  for (int i = 0; i < s->n; i++)
    s->frozen[i] = s->status[i] != MARGIN && svdd_violation(s, i) > tolerance;
  for (int i = 0; i < s->n; i++) {
    if (!s->frozen[i] || svdd_violation(s, i) <= tolerance) continue;
    s->frozen[i] = 0;
    int direction = s->g[i] < 0.0 ? 1 : -1;
    int status = svdd_walk(s, i, direction, 0.0, 1);
    if (status) return status;
    thaw(s);
  }
  for (int i = 0; i < s->n; i++) s->frozen[i] = 0;
  return SVDD_OK;
}

static int right(const Svdd *s) { return isfinite(s->r) && svdd_worst(s) <= 8.0 * svdd_tolerance(s); }

/* Factor and gradients afresh, then the same walk for whatever violates its condition. */
int svdd_repair(Svdd *s) {
  for (int round = 0; round < REPAIR_ROUNDS; round++) {
    int status = svdd_refactor(s);
    if (!status) status = svdd_polish(s);
    if (status) return status;
    svdd_refresh(s);
    if (right(s)) return SVDD_OK;
    status = settle(s);
    if (status) return status;
  }
  return SVDD_STUCK;
}

/* The first locations at their caps, in order, until the mass is 1; the one that takes the rest is the margin. */
static void fill_in_order(Svdd *s) {
  double left = s->full;
  s->m = 0;
  for (int i = 0; i < s->n; i++) {
    s->frozen[i] = 0;
    double taken = fmin(left, s->mult[i]);
    if (taken < 1e-9 * fmin(1.0, s->full)) taken = 0.0;
    left -= taken;
    s->a[i] = taken == s->mult[i] ? s->cap[i] : taken * s->C;
    s->status[i] = taken == 0.0 ? RESERVE : taken == s->mult[i] ? BOUND : MARGIN;
    if (s->status[i] == MARGIN) svdd_append(s, i, 1.0);
  }
}

static int most_violating(const Svdd *s) {
  int worst = -1;
  double least = svdd_tolerance(s);
  for (int i = 0; i < s->n; i++) {
    if (s->status[i] == MARGIN || svdd_violation(s, i) <= least) continue;
    least = svdd_violation(s, i);
    worst = i;
  }
  return worst;
}

/* With an empty margin rho is pinned by one active location: it joins first, so that the violator has a counterpart. */
static int join_pinned(Svdd *s) {
  int pinned = -1;
  for (int i = 0; i < s->n; i++)
    if (s->a[i] > 0.0 && (pinned < 0 || s->g[i] > s->g[pinned])) pinned = i;
  return svdd_join(s, pinned, -1);
}

/* Primal active-set solve from a feasible start, the most violating location first: the objective falls at every step. */
int svdd_resolve(Svdd *s) {
  fill_in_order(s);
  for (long left = 200 + 50L * s->n; left > 0; left--) {
    int status = svdd_polish(s);
    if (status) return status;
    svdd_refresh(s);
    int c = most_violating(s);
    if (c < 0) return SVDD_OK;
    if (s->m == 0) status = join_pinned(s);
    if (!status && s->status[c] != MARGIN) status = svdd_join(s, c, s->status[c] == RESERVE ? 1 : -1);
    if (status) return status;
    s->events++;
  }
  return SVDD_STUCK;
}

static int solve_again(Svdd *s) {
  s->path = PATH_RESOLVED;
  if (s->force & FORCE_FAILURE) return SVDD_STUCK;
  return svdd_resolve(s);
}

/* Whether the margin's true residual, taken from the masses, has drifted beyond the tolerance while coefficients moved. */
static int drifted(Svdd *s) {
  if (s->path == PATH_RESERVE) return 0;
  double tolerance = svdd_tolerance(s);
  int active = list_active(s);
  for (int p = 0; p < s->m; p++)
    if (fabs(s->r + field_at(s, s->members[p], active)) > tolerance) return 1;
  return 0;
}

/* Ends an operation whose walk returned status: refresh at the stated times, check, repair, solve from scratch. */
int svdd_end(Svdd *s, int status, int thorough) {
  if (status == SVDD_OK) status = shed_edges(s);
  if (status == SVDD_OK && (thorough || s->operations % REFRESH_EVERY == 0 || drifted(s))) {
    status = svdd_polish(s);
    if (status == SVDD_OK) svdd_refresh(s);
  }
  int sound = status == SVDD_OK && right(s);
  if (status == SVDD_OK && (!sound || s->force & FORCE_REPAIR)) {
    s->path = PATH_REPAIRED;
    status = svdd_repair(s);
  }
  if (status == SVDD_NO_MEMORY) return status;
  if (status != SVDD_OK || s->force & (FORCE_RESOLVE | FORCE_FAILURE)) status = solve_again(s);
  return status == SVDD_OK ? shed_edges(s) : status;
}

/* The first solve, once the caps carry the mass: fill, then release the frozen locations one at a time. */
int svdd_start(Svdd *s) {
  fill_in_order(s);
  svdd_refresh(s);
  return settle(s);
}
