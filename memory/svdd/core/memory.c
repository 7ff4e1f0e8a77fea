/* The operations: admit, delete, prune, and the cold tokens' drift clock. Each ends in a right state or in the one before it. */
#include "svdd.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int enough(const Svdd *s, double tokens) { return tokens >= s->full * (1.0 - 1e-12); }

static void set_cap(Svdd *s, int i) { s->cap[i] = s->mult[i] * s->C; }

/* ---- beginning, undoing and accounting for one operation ---- */

static int begin(Svdd *s) {
  if (s->stale) {
    int status = svdd_refactor(s);
    if (status) return status;
    s->stale = 0;
  }
  memcpy(s->a_was, s->a, sizeof(double) * (size_t)s->n);
  memcpy(s->g_was, s->g, sizeof(double) * (size_t)s->n);
  memcpy(s->status_was, s->status, (size_t)s->n);
  s->r_was = s->r;
  s->event_length = s->event_distance = 0.0;
  s->operations++;
  return SVDD_OK;
}

/* Back to the state that begin saw; tokens and locations must already be those of then. */
static void undo(Svdd *s) {
  memcpy(s->a, s->a_was, sizeof(double) * (size_t)s->n);
  memcpy(s->g, s->g_was, sizeof(double) * (size_t)s->n);
  memcpy(s->status, s->status_was, (size_t)s->n);
  memset(s->frozen, 0, (size_t)s->n);
  s->r = s->r_was;
  s->operations--;
  s->m = 0;
  for (int i = 0; i < s->n; i++)
    if (s->status[i] == MARGIN) s->members[s->m++] = i;
  s->stale = 1;
}

static void add_drift(Svdd *s, double amount) {
  double sum = s->drift + amount;
  s->drift_low += fabs(s->drift) >= fabs(amount) ? (s->drift - sum) + amount : (amount - sum) + s->drift;
  s->drift = sum;
}

/* How far any key's g can have fallen: min(|da|_1, 2 sqrt(da' K da)) - dr [MATH 1.3], from the operation's net change. */
static void account(Svdd *s) {
  double length = 0.0, energy = 0.0, change = s->r - s->r_was;
  for (int i = 0; i < s->n; i++) {
    double moved = s->a[i] - s->a_was[i];
    length += fabs(moved);
    energy += moved * 0.5 * (s->g[i] - s->g_was[i] - change);
  }
  energy += 0x1p-48 * length * s->scale;
  double net = fmin(length, 2.0 * sqrt(fmax(energy, 0.0)));
  double summed = s->rule == RULE_SUMMED ? s->event_length : s->event_distance;
  /* Repair and polish move mass outside the events, so the summed rules never fall below the net change. */
  add_drift(s, (s->rule == RULE_NET ? net : fmax(net, summed)) - change);
}

static double clock_now(const Svdd *s) { return s->drift + s->drift_low; }

static double expiry_of(const Svdd *s, double g) {
  return clock_now(s) + g - svdd_tolerance(s) - 0x1p-50 * (1.0 + fabs(clock_now(s)));
}

/* Whether a reserve key's distance from its condition shows above the rounding of the clock: only then can it go cold. */
static int can_chill(const Svdd *s, double g) { return expiry_of(s, g) > clock_now(s) && g > 4.0 * svdd_tolerance(s); }

/* ---- admission ---- */

static int locate(Svdd *s, const double *key) {
  int c = svdd_find(s, key);
  return c >= 0 ? c : svdd_add_location(s, key);
}

static void gradient_from_row(Svdd *s, int c) {
  const double *row = s->k + (size_t)c * (size_t)s->room;
  double total = 0.0;
  for (int j = 0; j < s->n; j++) total += row[j] * s->a[j];
  s->g[c] = s->g_was[c] = s->r + 2.0 * total;
}

/* The location's cap has grown by one token: it walks only if it now violates its condition. */
static int take_up(Svdd *s, int c) {
  if (s->status[c] == MARGIN) return SVDD_OK;
  if (s->g[c] < -svdd_tolerance(s)) {
    s->path = s->path > PATH_WALK ? s->path : PATH_WALK;
    return svdd_walk(s, c, 1, 0.0, 1);
  }
  return s->status[c] == BOUND ? svdd_join(s, c, 1) : SVDD_OK;
}

static int admit_to_solved(Svdd *s, int c) {
  if (s->mult[c] == 1) {
    s->a_was[c] = 0.0;
    s->status_was[c] = RESERVE;
    gradient_from_row(s, c);
  }
  set_cap(s, c);
  int status = svdd_end(s, take_up(s, c), 0);
  if (status) return status;
  account(s);
  return SVDD_OK;
}

static void take_back_last_token(Svdd *s, int c) {
  svdd_remove_token(s, s->tokens - 1);
  set_cap(s, c);
  if (s->mult[c] == 0) svdd_remove_location(s, c);
}

static int collect(Svdd *s, int c) {
  set_cap(s, c);
  if (!enough(s, s->tokens)) return SVDD_OK;
  s->path = PATH_WALK;
  memset(s->a_was, 0, sizeof(double) * (size_t)s->n);
  int status = svdd_end(s, svdd_start(s), 1);
  s->solved = status == SVDD_OK;
  return status;
}

static int admit_hot(Svdd *s, const double *key, int64_t id) {
  int status = begin(s);
  if (status) return status;
  int c = locate(s, key);
  if (c < 0 || svdd_add_token(s, id, c)) return SVDD_NO_MEMORY;
  status = s->solved ? admit_to_solved(s, c) : collect(s, c);
  if (!status) return SVDD_OK;
  take_back_last_token(s, c);
  undo(s);
  return status;
}

/* ---- cold tokens whose expiry has passed ---- */

static int examine_first(Svdd *s) {
  int64_t id = s->cold_id[0];
  int status = svdd_cold_key(s, 0, s->scratch_key);
  if (status) return status;
  double g = svdd_gradient_at(s, s->scratch_key);
  s->reexamined++;
  svdd_cold_remove(s, 0);
  if (can_chill(s, g)) return svdd_cold_push(s, id, expiry_of(s, g), s->scratch_key);
  s->readmitted++;
  status = admit_hot(s, s->scratch_key, id);
  if (status) svdd_cold_push(s, id, -INFINITY, s->scratch_key);
  return status;
}

static int examine_lapsed(Svdd *s) {
  int status = SVDD_OK;
  while (!status && s->solved && s->cold > 0 && s->cold_expiry[0] <= clock_now(s)) status = examine_first(s);
  return status;
}

/* Brings cold tokens back by ascending expiry until the hot ones that stay can carry the mass. */
static int recall(Svdd *s, int leaving) {
  while (s->cold > 0 && s->cold_expiry[0] < INFINITY && !enough(s, s->tokens - leaving)) {
    int64_t id = s->cold_id[0];
    int status = svdd_cold_key(s, 0, s->scratch_key);
    if (status) return status;
    svdd_cold_remove(s, 0);
    s->readmitted++;
    status = admit_hot(s, s->scratch_key, id);
    if (status) return svdd_cold_push(s, id, -INFINITY, s->scratch_key), status;
  }
  return SVDD_OK;
}

static void start_report(Svdd *s) {
  s->path = PATH_RESERVE;
  s->events = s->reexamined = s->readmitted = 0;
}

int svdd_admit_many(Svdd *s, const double *keys, const int64_t *ids, int count, int *done) {
  int status = SVDD_OK;
  start_report(s);
  for (*done = 0; *done < count && !status; ++*done) {
    status = admit_hot(s, keys + (size_t)*done * (size_t)s->d, ids[*done]);
    if (!status) status = examine_lapsed(s);
  }
  return status;
}

/* ---- deletion ---- */

static int position_of(const Svdd *s, int64_t id) {
  for (int i = 0; i < s->tokens; i++)
    if (s->token_id[i] == id) return i;
  return -1;
}

static int margin_position(const Svdd *s, int c) {
  for (int p = 0; p < s->m; p++)
    if (s->members[p] == c) return p;
  return -1;
}

/* One token fewer at c: its mass walks down to the smaller cap, if it is above. */
static int shrink(Svdd *s, int c) {
  s->mult[c]--;
  set_cap(s, c);
  if (s->a[c] <= s->cap[c]) return SVDD_OK;
  s->path = PATH_WALK;
  if (s->status[c] == MARGIN) {
    int position = margin_position(s, c);
    s->status[c] = MOVING;
    int status = svdd_drop(s, position);
    if (status) return status;
  }
  return svdd_walk(s, c, -1, s->cap[c], 0);
}

/* The scale of the kernel is that of the locations held: tolerances follow it down when an outlier leaves. */
static void drop_empty_locations(Svdd *s) {
  int widest_left = 0;
  for (int i = s->n - 1; i >= 0; i--) {
    if (s->mult[i] != 0) continue;
    const double *row = s->k + (size_t)i * (size_t)s->room;
    for (int j = 0; j < s->n && !widest_left; j++) widest_left = -row[j] >= s->scale;
    svdd_remove_location(s, i);
  }
  if (widest_left) svdd_measure_scale(s);
}

/* Forgets the tokens marked by location -1. */
static void drop_marked_tokens(Svdd *s) {
  int kept = 0;
  for (int i = 0; i < s->tokens; i++) {
    if (s->token_location[i] < 0) continue;
    s->token_id[kept] = s->token_id[i];
    s->token_location[kept++] = s->token_location[i];
  }
  s->tokens = kept;
}

/* Cold tokens that are being deleted wait at expiry +inf: neither recalled nor examined; how many tokens are hot. */
static int set_cold_aside(Svdd *s, const int64_t *ids, int count) {
  int hot = 0;
  for (int i = 0; i < count; i++) {
    if (position_of(s, ids[i]) >= 0) {
      hot++;
      continue;
    }
    for (int j = 0; j < s->cold; j++)
      if (s->cold_id[j] == ids[i]) {
        svdd_cold_expire(s, j, INFINITY);
        break;
      }
  }
  return hot;
}

static void finish_cold(Svdd *s, int keep) {
  for (int j = s->cold - 1; j >= 0; j--) {
    if (s->cold_expiry[j] < INFINITY) continue;
    if (keep) svdd_cold_expire(s, j, -INFINITY);
    else svdd_cold_remove(s, j);
    j = s->cold;
  }
}

static int shrink_all(Svdd *s, const int64_t *ids, int count) {
  int status = SVDD_OK;
  for (int i = 0; i < count && !status; i++) {
    int position = position_of(s, ids[i]);
    if (position >= 0) status = shrink(s, s->token_location[position]);
  }
  return status;
}

static void restore_counts(Svdd *s) {
  memset(s->mult, 0, sizeof(int) * (size_t)s->n);
  for (int i = 0; i < s->tokens; i++) s->mult[s->token_location[i]]++;
  for (int i = 0; i < s->n; i++) set_cap(s, i);
}

static int delete_solved(Svdd *s, const int64_t *ids, int count) {
  int hot = set_cold_aside(s, ids, count);
  int status = recall(s, hot);
  if (!status) status = begin(s);
  if (status) return finish_cold(s, 1), status;
  if (hot) {
    status = shrink_all(s, ids, count);
    status = svdd_end(s, status, s->path != PATH_RESERVE);
  }
  if (status) {
    restore_counts(s);
    undo(s);
    finish_cold(s, 1);
    return status;
  }
  account(s);
  for (int i = 0; i < count; i++) {
    int position = position_of(s, ids[i]);
    if (position >= 0) s->token_location[position] = -1;
  }
  drop_marked_tokens(s);
  drop_empty_locations(s);
  finish_cold(s, 0);
  return examine_lapsed(s);
}

/* Below capacity there is no gate: every retained token is collected again, as if the others had never been given. */
static int delete_to_collecting(Svdd *s, const int64_t *ids, int count) {
  set_cold_aside(s, ids, count);
  int status = recall(s, INT_MAX / 2);
  if (status) return finish_cold(s, 1), status;
  for (int i = 0; i < count; i++) {
    int position = position_of(s, ids[i]);
    if (position < 0) continue;
    s->mult[s->token_location[position]]--;
    s->token_location[position] = -1;
  }
  finish_cold(s, 0);
  drop_marked_tokens(s);
  s->m = s->solved = s->stale = 0;
  s->r = 0.0;
  drop_empty_locations(s);
  memset(s->status, RESERVE, (size_t)s->n);
  for (int i = 0; i < s->n; i++) {
    s->a[i] = s->g[i] = 0.0;
    set_cap(s, i);
  }
  return SVDD_OK;
}

int svdd_delete(Svdd *s, const int64_t *ids, int count) {
  start_report(s);
  if (s->solved && enough(s, (double)s->tokens + s->cold - count)) return delete_solved(s, ids, count);
  return delete_to_collecting(s, ids, count);
}

/* ---- pruning ---- */

static int chill(Svdd *s, const unsigned char *leaving) {
  for (int i = 0; i < s->tokens; i++) {
    int c = s->token_location[i];
    if (!leaving[c]) continue;
    if (svdd_cold_push(s, s->token_id[i], expiry_of(s, s->g[c]), s->x + (size_t)c * (size_t)s->d)) return SVDD_NO_MEMORY;
    s->mult[c]--;
    s->token_location[i] = -1;
  }
  drop_marked_tokens(s);
  drop_empty_locations(s);
  return SVDD_OK;
}

/* Reserve tokens go cold with an expiry on the drift clock; returns how many left through *moved. */
int svdd_prune(Svdd *s, int *moved) {
  int before = s->tokens;
  start_report(s);
  int status = begin(s);
  if (!status) status = svdd_end(s, SVDD_OK, 1);
  if (status) return undo(s), status;
  account(s);
  unsigned char *leaving = calloc((size_t)s->n + 1, 1);
  if (!leaving) return SVDD_NO_MEMORY;
  for (int i = 0; i < s->n; i++) leaving[i] = s->status[i] == RESERVE && can_chill(s, s->g[i]);
  status = chill(s, leaving);
  free(leaving);
  *moved = before - s->tokens;
  return status ? status : examine_lapsed(s);
}

/* ---- loading a state ---- */

/* Locations, masses and r exactly as given; the factor is made when the next operation needs it. */
int svdd_load(Svdd *s, int n, const double *keys, const double *mass, int tokens, const int64_t *ids, const int *location, double r,
              int solved) {
  if (svdd_reserve(s, n)) return SVDD_NO_MEMORY;
  for (int i = 0; i < n; i++)
    if (svdd_add_location(s, keys + (size_t)i * (size_t)s->d) < 0) return SVDD_NO_MEMORY;
  for (int i = 0; i < tokens; i++)
    if (svdd_add_token(s, ids[i], location[i])) return SVDD_NO_MEMORY;
  if (svdd_reserve_margin(s, n + 1)) return SVDD_NO_MEMORY;
  for (int i = 0; i < n; i++) {
    set_cap(s, i);
    s->a[i] = mass[i];
    s->status[i] = mass[i] <= 0.0 ? RESERVE : mass[i] >= s->cap[i] ? BOUND : MARGIN;
    if (s->status[i] == MARGIN) s->members[s->m++] = i;
  }
  svdd_gradients(s);
  s->r = r;
  for (int i = 0; i < n; i++) s->g[i] += r;
  s->stale = s->solved = solved;
  return SVDD_OK;
}
