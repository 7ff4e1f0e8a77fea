/* The support-vector memory (SVDD at fixed C): one problem, its state and its moves.
 *
 * Everything works on the shifted kernel k(a, b) = exp(-|a-b|^2/sigma^2) - 1, so k(a, a) = 0 and wide kernels lose no digits.
 * With sum a = 1 the stationarity value is g_i = r + 2 sum_j k_ij a_j with r = rho + 1:
 *   margin (0 < a_i < cap_i): g_i = 0;  bound (a_i = cap_i): g_i <= 0;  reserve (a_i = 0): g_i >= 0.
 * A location is a distinct key; its cap is (number of tokens there) * C.
 * The margin system is kept as the Cholesky factor of the Gram matrix of feature differences to a reference member,
 *   H_ij = k_ij - k_i,ref - k_ref,j = <phi_i - phi_ref, phi_j - phi_ref>,
 * which the shifted kernel gives without cancellation and whose pivots are squared distances to the affine hull.
 */
#ifndef SVDD_H
#define SVDD_H
#include <float.h>
#include <stdint.h>
#include <stddef.h>

enum { RESERVE = 0, MARGIN = 1, BOUND = 2, MOVING = 3 };
enum { PATH_RESERVE = 0, PATH_WALK = 1, PATH_REPAIRED = 2, PATH_RESOLVED = 3 };
enum { SVDD_OK = 0, SVDD_STUCK = 1, SVDD_INFEASIBLE = 2, SVDD_NO_MEMORY = 3, SVDD_FETCH_FAILED = 4 };
/* What advances the drift clock: the operation's net change, or, to compare, its events one by one by length or by the
 * smaller of length and feature distance. All three are sound; the net change is the tightest. */
enum { RULE_NET = 0, RULE_SUMMED = 1, RULE_MINIMUM = 2 };
/* Switches that tests use to force the repair paths; 0 in normal use. */
enum { FORCE_REPAIR = 1, FORCE_RESOLVE = 2, FORCE_FAILURE = 4 };

typedef int (*svdd_fetch)(void *context, int64_t id, double *key);

typedef struct Svdd {
  int d;                 /* key width */
  double C, inv_s2;      /* cap of one token; 1/sigma^2 */
  double full;           /* tokens that fill the mass: 1/C, an exact integer where 1/C is one to 1e-12 */

  /* locations */
  int n, room;
  double *x, *k;         /* keys (room, d); shifted kernel (room, room) */
  double *a, *cap, *g;   /* mass, cap, stationarity value */
  double *a_was, *g_was; /* as they were when the operation began */
  double *rate;          /* d g / d mass of the moving location */
  int *mult, *index_slot, *list; /* list: the locations of a pass, with their weights in list_weight */
  double *list_weight;
  unsigned char *status, *status_was, *frozen;
  long *left_at;         /* position stamp at which a point last left the margin */

  /* margin factor: members[0] is the reference */
  int m, margin_room;
  int *members;
  double *L, *y, *beta;

  double r, r_was, scale;
  int solved;            /* 0 while the memory only collects */
  int stale;             /* the factor must be made before the next move */
  long operations, stamp;
  long events, reexamined, readmitted;
  long returns;          /* points that came back to the margin at the very position at which they left it; stays 0 */
  int path, force;

  /* hot tokens in order of arrival */
  int tokens, token_room;
  int64_t *token_id;
  int *token_location;

  /* exact-key index: open addressing over locations */
  int index_room;
  int *index;

  /* cold tokens: a heap by expiry on the drift clock */
  int cold, cold_room;
  int64_t *cold_id;
  double *cold_expiry, *cold_key; /* cold_key is NULL when keys come from fetch */
  double drift, drift_low;        /* compensated sum */
  int rule;
  double event_length, event_distance; /* summed over the events of the operation */
  svdd_fetch fetch;
  void *fetch_context;
  double *scratch_key;
} Svdd;

/* lifetime (store.c) */
Svdd *svdd_new(int d, double C, double sigma, int keep_cold_keys);
void svdd_free(Svdd *s);
void svdd_set_fetch(Svdd *s, svdd_fetch fetch, void *context);
int svdd_reserve(Svdd *s, int locations);
int svdd_reserve_margin(Svdd *s, int members);
int svdd_find(const Svdd *s, const double *key);
int svdd_add_location(Svdd *s, const double *key);
void svdd_remove_location(Svdd *s, int i);
void svdd_measure_scale(Svdd *s);
int svdd_add_token(Svdd *s, int64_t id, int location);
void svdd_remove_token(Svdd *s, int position);
int svdd_cold_push(Svdd *s, int64_t id, double expiry, const double *key);
void svdd_cold_remove(Svdd *s, int position);
void svdd_cold_expire(Svdd *s, int position, double expiry);
int svdd_cold_until(const Svdd *s, double clock, int room, int *positions);
int svdd_cold_key(Svdd *s, int position, double *key);

/* kernel (kernel.c) */
double svdd_kernel(const Svdd *s, const double *p, const double *q);
void svdd_add_rows(const Svdd *s, int count, const int *which, const double *weight, double *out);
void svdd_add_scaled(int n, double factor, const double *x, double *out);
double svdd_gradient_at(const Svdd *s, const double *key);
void svdd_gradients_at(const Svdd *s, const double *queries, int count, double *out);
void svdd_score(const Svdd *s, const double *queries, int count, double *out);
void svdd_weights(const Svdd *s, const double *queries, int count, double *out);
void svdd_exact_gradient(int n, int d, const double *x, const double *a, double sigma, int count, const double *queries, double r,
                         double *out);

/* margin factor (factor.c) */
double svdd_pivot(Svdd *s, int c);
void svdd_back_solve(Svdd *s);
void svdd_correction(Svdd *s, double deficit);
double svdd_dependence(const Svdd *s);
int svdd_append(Svdd *s, int c, double pivot);
int svdd_drop(Svdd *s, int position);
int svdd_refactor(Svdd *s);

/* walk (walk.c) */
double svdd_tolerance(const Svdd *s);
void svdd_note_move(Svdd *s, double step, double pivot);
int svdd_join(Svdd *s, int c, int direction);
int svdd_walk(Svdd *s, int c, int direction, double target, int stop_at_kkt);
void svdd_leave(Svdd *s, int position, int status);

/* upkeep (upkeep.c) */
void svdd_gradients(Svdd *s);
void svdd_refresh(Svdd *s);
int svdd_polish(Svdd *s);
double svdd_violation(const Svdd *s, int i);
double svdd_worst(const Svdd *s);
int svdd_repair(Svdd *s);
int svdd_resolve(Svdd *s);
int svdd_start(Svdd *s);
int svdd_end(Svdd *s, int status, int thorough);

/* operations (memory.c) */
int svdd_admit_many(Svdd *s, const double *keys, const int64_t *ids, int count, int *done);
int svdd_delete(Svdd *s, const int64_t *ids, int count);
int svdd_prune(Svdd *s, int *moved);
int svdd_load(Svdd *s, int n, const double *keys, const double *mass, int tokens, const int64_t *ids, const int *location, double r,
              int solved);
#endif
