/* The walk: one location's mass moves, the margin answers, every other location keeps its condition [CP, SVA 3.2-3.3]. */
#include "svdd.h"
#include <math.h>

enum { BOX_END, GRADIENT_ZERO, MEMBER_LEAVES, POINT_JOINS };

typedef struct {
  double step;
  int kind, who;
} Event;

/* What rounding leaves in a stationarity value: kernel entries and a margin-long sum, at the scale of the shifted kernel. */
double svdd_tolerance(const Svdd *s) { return (16.0 + s->m) * 0x1p-51 * s->scale; }

static void offer(Event *best, double step, int kind, int who) {
  if (step < 0.0) step = 0.0;
  if (step < best->step) *best = (Event){step, kind, who};
}

void svdd_leave(Svdd *s, int position, int status) {
  int i = s->members[position];
  s->a[i] = status == BOUND ? s->cap[i] : 0.0;
  s->status[i] = (unsigned char)status;
  s->left_at[i] = s->stamp;
}

static void offer_members(const Svdd *s, int direction, Event *best) {
  for (int p = 0; p < s->m; p++) {
    int i = s->members[p];
    double rate = direction * s->beta[p];
    if (rate < 0.0) offer(best, s->a[i] / -rate, MEMBER_LEAVES, p);
    if (rate > 0.0) offer(best, (s->cap[i] - s->a[i]) / rate, MEMBER_LEAVES, p);
  }
}

static void move_masses(Svdd *s, int c, int direction, double step) {
  s->a[c] += direction * step;
  for (int p = 0; p < s->m; p++) s->a[s->members[p]] += direction * step * s->beta[p];
}

/* One move of s->beta's direction: |da|_1 is step (1 + sum |beta|) and da' K da is step^2 times the pivot. */
void svdd_note_move(Svdd *s, double step, double pivot) {
  double length = 1.0;
  for (int p = 0; p < s->m; p++) length += fabs(s->beta[p]);
  s->event_length += step * length;
  s->event_distance += step * fmin(length, 2.0 * sqrt(fmax(pivot, 0.0)));
}

static int member_out(Svdd *s, int position, int direction) {
  svdd_leave(s, position, direction * s->beta[position] > 0.0 ? BOUND : RESERVE);
  return svdd_drop(s, position);
}

/* Puts c, whose condition holds with g = 0, into the margin. A key that depends on the members first moves along the null
 * direction, which changes neither sum a nor K a, until a member reaches 0 or its cap and makes room, or c itself does. */
int svdd_join(Svdd *s, int c, int direction) {
  while (s->m > 0) {
    double pivot = svdd_pivot(s, c);
    if (pivot > svdd_dependence(s)) return svdd_append(s, c, pivot);
    svdd_back_solve(s);
    Event best = {direction > 0 ? s->cap[c] - s->a[c] : s->a[c], BOX_END, c};
    offer_members(s, direction, &best);
    svdd_note_move(s, best.step, pivot);
    move_masses(s, c, direction, best.step);
    s->events++;
    if (best.kind == BOX_END) {
      s->a[c] = direction > 0 ? s->cap[c] : 0.0;
      s->status[c] = direction > 0 ? BOUND : RESERVE;
      return SVDD_OK;
    }
    int status = member_out(s, best.who, direction);
    if (status) return status;
  }
  return svdd_append(s, c, 1.0);
}

static void shift_rho(Svdd *s, double change) {
  s->r += change;
  for (int i = 0; i < s->n; i++) s->g[i] += change;
}

/* The location that can answer first when no margin member can: the bound point nearest to release, or the reserve point
 * nearest to absorb; -1 where there is none. */
static int nearest_partner(const Svdd *s, int c, int direction) {
  int wanted = direction > 0 ? BOUND : RESERVE, best = -1;
  for (int i = 0; i < s->n; i++) {
    if (i == c || s->status[i] != wanted || s->frozen[i] || s->cap[i] == 0.0) continue;
    if (best < 0 || direction * s->g[i] > direction * s->g[best]) best = i;
  }
  return best;
}

/* Margin empty: rho moves alone until a partner joins or c itself reaches g = 0. Sets *arrived in the second case. */
static int move_rho(Svdd *s, int c, int direction, int stop_at_kkt, int *arrived) {
  int partner = nearest_partner(s, c, direction);
  double own = stop_at_kkt ? -s->g[c] : direction * INFINITY;
  double other = partner < 0 ? direction * INFINITY : -s->g[partner];
  if (direction * own <= direction * other) {
    if (!stop_at_kkt) return SVDD_INFEASIBLE;
    shift_rho(s, own);
    s->g[c] = 0.0;
    *arrived = 1;
    return SVDD_OK;
  }
  shift_rho(s, other);
  s->g[partner] = 0.0;
  return svdd_join(s, partner, -direction);
}

/* d g / d mass of c for every location outside the margin; returns the noise below which a rate is rounding. */
static double gradient_rates(Svdd *s, int c, double *rho_rate) {
  size_t room = (size_t)s->room;
  const double *row = s->k + (size_t)c * room;
  int ref = s->members[0];
  double weight = 1.0, base = row[ref];
  for (int p = 0; p < s->m; p++) {
    base += s->beta[p] * s->k[(size_t)ref * room + (size_t)s->members[p]];
    weight += fabs(s->beta[p]);
  }
  *rho_rate = -2.0 * base;
  for (int i = 0; i < s->n; i++) s->rate[i] = row[i] - base;
  svdd_add_rows(s, s->m, s->members, s->beta, s->rate);
  for (int i = 0; i < s->n; i++) s->rate[i] *= 2.0;
  for (int p = 0; p < s->m; p++) s->rate[s->members[p]] = 0.0;
  return weight * 0x1p-50 * s->scale;
}

/* A point that left the margin at this very position may not come straight back: without this, ties could cycle. */
static void offer_points(const Svdd *s, int c, int direction, double noise, double nothing, Event *best) {
  for (int i = 0; i < s->n; i++) {
    if (i == c || s->frozen[i]) continue;
    double rate = direction * s->rate[i], step;
    if (s->status[i] == RESERVE && rate < -noise && s->cap[i] > 0.0) step = s->g[i] / -rate;
    else if (s->status[i] == BOUND && rate > noise) step = -s->g[i] / rate;
    else continue;
    if (step <= nothing && s->left_at[i] == s->stamp) continue;
    offer(best, step, POINT_JOINS, i);
  }
}

static double largest_response(const Svdd *s) {
  double largest = 1.0;
  for (int p = 0; p < s->m; p++) largest = fmax(largest, fabs(s->beta[p]));
  return largest;
}

static void advance(Svdd *s, int c, int direction, const Event *best, int dependent, double rho_rate, double nothing) {
  move_masses(s, c, direction, best->step);
  if (!dependent) {
    double change = direction * best->step;
    s->r += change * rho_rate;
    svdd_add_scaled(s->n, change, s->rate, s->g);
  }
  if (best->step > nothing) s->stamp++;
}

static int place_arrived(Svdd *s, int c, double pivot) {
  s->g[c] = 0.0;
  if (s->a[c] <= 0.0) s->status[c] = RESERVE;
  else if (s->a[c] >= s->cap[c]) s->status[c] = BOUND;
  else return svdd_append(s, c, pivot);
  return SVDD_OK;
}

static void place_at_end(Svdd *s, int c, int direction, double target) {
  s->a[c] = direction > 0 ? s->cap[c] : target;
  s->status[c] = s->a[c] == 0.0 ? RESERVE : BOUND;
}

/* One event of a walk; *done when c has arrived. */
static int walk_event(Svdd *s, int c, int direction, double target, int stop_at_kkt, int *done) {
  double rho_rate = 0.0, pivot = svdd_pivot(s, c);
  int dependent = pivot <= svdd_dependence(s);
  svdd_back_solve(s);
  double nothing = 1e-13 * s->C / largest_response(s);
  Event best = {direction > 0 ? s->cap[c] - s->a[c] : s->a[c] - target, BOX_END, c};
  if (best.step < 0.0) best.step = 0.0;
  if (!dependent && stop_at_kkt) offer(&best, -direction * s->g[c] / (2.0 * pivot), GRADIENT_ZERO, c);
  offer_members(s, direction, &best);
  if (!dependent) {
    double noise = gradient_rates(s, c, &rho_rate);
    offer_points(s, c, direction, noise, nothing, &best);
  }
  svdd_note_move(s, best.step, pivot);
  advance(s, c, direction, &best, dependent, rho_rate, nothing);
  *done = best.kind == BOX_END || best.kind == GRADIENT_ZERO;
  if (best.kind == MEMBER_LEAVES) return member_out(s, best.who, direction);
  if (best.kind == GRADIENT_ZERO) return place_arrived(s, c, pivot);
  if (best.kind == BOX_END) return place_at_end(s, c, direction, target), SVDD_OK;
  if (best.step <= nothing && s->left_at[best.who] == s->stamp) s->returns++;
  int from_reserve = s->status[best.who] == RESERVE;
  s->g[best.who] = 0.0;
  return svdd_join(s, best.who, from_reserve ? 1 : -1);
}

/* Moves the mass of c (no margin member) up (direction 1) to its cap or down (-1) to target; with stop_at_kkt the walk ends
 * as soon as the condition of c holds. Everything else keeps its condition at every step. */
int svdd_walk(Svdd *s, int c, int direction, double target, int stop_at_kkt) {
  long limit = s->events + 1000 + 16L * s->n;
  int done = 0, status = SVDD_OK;
  s->status[c] = MOVING;
  s->stamp++;
  while (!done && !status) {
    if (s->events++ > limit) return SVDD_STUCK;
    if (s->m > 0) {
      status = walk_event(s, c, direction, target, stop_at_kkt, &done);
    } else {
      status = move_rho(s, c, direction, stop_at_kkt, &done);
      if (!status && done) status = place_arrived(s, c, 1.0);
      if (status == SVDD_INFEASIBLE && s->a[c] - target <= 1e-12) status = SVDD_OK, done = 1, place_at_end(s, c, -1, target);
    }
  }
  return status;
}
