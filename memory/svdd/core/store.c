/* Storage: locations, tokens, the exact-key index and the heap of cold tokens. */
#include "svdd.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int grow(void *pointer, size_t count, size_t size) {
  void **slot = pointer;
  void *grown = realloc(*slot, count * size);
  if (!grown) return SVDD_NO_MEMORY;
  *slot = grown;
  return SVDD_OK;
}

static double tokens_that_fill(double C) {
  double whole = nearbyint(1.0 / C);
  return fabs(1.0 / C - whole) <= 1e-12 * whole ? whole : 1.0 / C;
}

Svdd *svdd_new(int d, double C, double sigma, int keep_cold_keys) {
  Svdd *s = calloc(1, sizeof *s);
  if (!s) return NULL;
  s->d = d;
  s->full = tokens_that_fill(C);
  s->C = 1.0 / s->full;
  if (s->full != nearbyint(s->full)) s->C = C;
  s->inv_s2 = 1.0 / (sigma * sigma);
  s->stamp = 1;
  s->scratch_key = malloc(sizeof(double) * (size_t)d);
  if (keep_cold_keys) s->cold_key = malloc(sizeof(double) * (size_t)d);
  if (!s->scratch_key || (keep_cold_keys && !s->cold_key) || svdd_reserve(s, 16) || svdd_reserve_margin(s, 8)) {
    svdd_free(s);
    return NULL;
  }
  return s;
}

void svdd_free(Svdd *s) {
  if (!s) return;
  void *owned[] = {s->x, s->k, s->a, s->cap, s->g, s->a_was, s->g_was, s->rate, s->mult, s->index_slot, s->list, s->list_weight, s->status,
                   s->status_was, s->frozen, s->left_at, s->members, s->L, s->y, s->beta, s->token_id, s->token_location,
                   s->index, s->cold_id, s->cold_expiry, s->cold_key, s->scratch_key, s};
  for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
}

void svdd_set_fetch(Svdd *s, svdd_fetch fetch, void *context) {
  s->fetch = fetch;
  s->fetch_context = context;
}

/* ---- exact-key index ---- */

static uint64_t hash_key(const double *key, int d) {
  uint64_t h = 1469598103934665603ull;
  for (int j = 0; j < d; j++) {
    uint64_t bits;
    memcpy(&bits, key + j, sizeof bits);
    h = (h ^ bits) * 0x9e3779b97f4a7c15ull;
    h ^= h >> 29;
  }
  return h;
}

static int slot_of(const Svdd *s, const double *key) {
  int mask = s->index_room - 1, slot = (int)(hash_key(key, s->d) & (uint64_t)mask);
  while (s->index[slot] >= 0 && memcmp(s->x + (size_t)s->index[slot] * s->d, key, sizeof(double) * (size_t)s->d))
    slot = (slot + 1) & mask;
  return slot;
}

int svdd_find(const Svdd *s, const double *key) { return s->index_room ? s->index[slot_of(s, key)] : -1; }

static void index_insert(Svdd *s, int i) {
  int slot = slot_of(s, s->x + (size_t)i * s->d);
  s->index[slot] = i;
  s->index_slot[i] = slot;
}

/* Linear probing without tombstones: entries behind the hole move up when their home allows it. */
static void index_erase(Svdd *s, int i) {
  int mask = s->index_room - 1, hole = s->index_slot[i], next = hole;
  for (;;) {
    next = (next + 1) & mask;
    int j = s->index[next];
    if (j < 0) break;
    int home = (int)(hash_key(s->x + (size_t)j * s->d, s->d) & (uint64_t)mask);
    if (((next - home) & mask) < ((next - hole) & mask)) continue;
    s->index[hole] = j;
    s->index_slot[j] = hole;
    hole = next;
  }
  s->index[hole] = -1;
}

static int rebuild_index(Svdd *s, int locations) {
  int room = 64;
  while (room < 4 * locations) room *= 2;
  int *index = malloc(sizeof(int) * (size_t)room);
  if (!index) return SVDD_NO_MEMORY;
  for (int i = 0; i < room; i++) index[i] = -1;
  free(s->index);
  s->index = index;
  s->index_room = room;
  for (int i = 0; i < s->n; i++) index_insert(s, i);
  return SVDD_OK;
}

/* ---- locations ---- */

static int grow_kernel(Svdd *s, int room) {
  double *k = malloc(sizeof(double) * (size_t)room * (size_t)room);
  if (!k) return SVDD_NO_MEMORY;
  for (int i = 0; i < s->n; i++)
    memcpy(k + (size_t)i * room, s->k + (size_t)i * s->room, sizeof(double) * (size_t)s->n);
  free(s->k);
  s->k = k;
  return SVDD_OK;
}

int svdd_reserve(Svdd *s, int locations) {
  if (locations <= s->room) return SVDD_OK;
  int room = s->room ? s->room : 16;
  while (room < locations) room *= 2;
  size_t count = (size_t)room;
  if (grow(&s->x, count * (size_t)s->d, sizeof(double)) || grow(&s->a, count, sizeof(double)) ||
      grow(&s->cap, count, sizeof(double)) || grow(&s->g, count, sizeof(double)) ||
      grow(&s->a_was, count, sizeof(double)) || grow(&s->g_was, count, sizeof(double)) ||
      grow(&s->rate, count, sizeof(double)) || grow(&s->mult, count, sizeof(int)) ||
      grow(&s->index_slot, count, sizeof(int)) || grow(&s->list, count, sizeof(int)) ||
      grow(&s->list_weight, count, sizeof(double)) || grow(&s->status, count, 1) || grow(&s->status_was, count, 1) ||
      grow(&s->frozen, count, 1) || grow(&s->left_at, count, sizeof(long)) || grow_kernel(s, room))
    return SVDD_NO_MEMORY;
  s->room = room;
  return rebuild_index(s, room);
}

/* Appends a location with no token and no mass; its kernel row is filled here once. */
int svdd_add_location(Svdd *s, const double *key) {
  if (svdd_reserve(s, s->n + 1)) return -1;
  int c = s->n;
  size_t room = (size_t)s->room;
  double *row = s->k + (size_t)c * room;
  memcpy(s->x + (size_t)c * s->d, key, sizeof(double) * (size_t)s->d);
  for (int i = 0; i < c; i++) {
    row[i] = svdd_kernel(s, key, s->x + (size_t)i * s->d);
    s->k[(size_t)i * room + (size_t)c] = row[i];
    if (-row[i] > s->scale) s->scale = -row[i];
  }
  row[c] = 0.0;
  s->a[c] = s->a_was[c] = s->cap[c] = s->g[c] = s->g_was[c] = 0.0;
  s->mult[c] = 0;
  s->status[c] = s->status_was[c] = RESERVE;
  s->frozen[c] = 0;
  s->left_at[c] = 0;
  s->n++;
  index_insert(s, c);
  return c;
}

static void move_location(Svdd *s, int from, int to) {
  size_t room = (size_t)s->room;
  index_erase(s, from);
  memcpy(s->x + (size_t)to * s->d, s->x + (size_t)from * s->d, sizeof(double) * (size_t)s->d);
  s->k[(size_t)from * room + (size_t)to] = 0.0;
  memcpy(s->k + (size_t)to * room, s->k + (size_t)from * room, sizeof(double) * (size_t)s->n);
  for (int i = 0; i < s->n; i++) s->k[(size_t)i * room + (size_t)to] = s->k[(size_t)to * room + (size_t)i];
  s->a[to] = s->a[from], s->cap[to] = s->cap[from], s->g[to] = s->g[from];
  s->a_was[to] = s->a_was[from], s->g_was[to] = s->g_was[from];
  s->mult[to] = s->mult[from], s->status[to] = s->status[from], s->status_was[to] = s->status_was[from];
  s->frozen[to] = s->frozen[from], s->left_at[to] = s->left_at[from];
  for (int i = 0; i < s->m; i++) if (s->members[i] == from) s->members[i] = to;
  for (int i = 0; i < s->tokens; i++) if (s->token_location[i] == from) s->token_location[i] = to;
  index_insert(s, to);
}

/* Removes a location that is no margin member and holds no token; the last one takes its place. */
void svdd_remove_location(Svdd *s, int i) {
  int last = s->n - 1;
  index_erase(s, i);
  if (i != last) move_location(s, last, i);
  s->n--;
}

void svdd_measure_scale(Svdd *s) {
  s->scale = 0.0;
  for (int i = 0; i < s->n; i++)
    for (int j = 0; j < i; j++)
      if (-s->k[(size_t)i * s->room + (size_t)j] > s->scale) s->scale = -s->k[(size_t)i * s->room + (size_t)j];
}

int svdd_reserve_margin(Svdd *s, int members) {
  if (members <= s->margin_room) return SVDD_OK;
  int room = s->margin_room ? s->margin_room : 8;
  while (room < members) room *= 2;
  double *L = malloc(sizeof(double) * (size_t)room * (size_t)room);
  if (!L) return SVDD_NO_MEMORY;
  for (int i = 0; i + 1 < s->m; i++)
    memcpy(L + (size_t)i * room, s->L + (size_t)i * s->margin_room, sizeof(double) * (size_t)(i + 1));
  free(s->L);
  s->L = L;
  s->margin_room = room;
  return grow(&s->members, (size_t)room, sizeof(int)) || grow(&s->y, (size_t)room, sizeof(double)) ||
         grow(&s->beta, (size_t)room, sizeof(double));
}

/* ---- hot tokens ---- */

int svdd_add_token(Svdd *s, int64_t id, int location) {
  if (s->tokens == s->token_room) {
    int room = s->token_room ? 2 * s->token_room : 16;
    if (grow(&s->token_id, (size_t)room, sizeof(int64_t)) || grow(&s->token_location, (size_t)room, sizeof(int)))
      return SVDD_NO_MEMORY;
    s->token_room = room;
  }
  s->token_id[s->tokens] = id;
  s->token_location[s->tokens++] = location;
  s->mult[location]++;
  return SVDD_OK;
}

void svdd_remove_token(Svdd *s, int position) {
  size_t tail = (size_t)(--s->tokens - position);
  s->mult[s->token_location[position]]--;
  memmove(s->token_id + position, s->token_id + position + 1, tail * sizeof(int64_t));
  memmove(s->token_location + position, s->token_location + position + 1, tail * sizeof(int));
}

/* ---- cold tokens ---- */

static int cold_before(const Svdd *s, int i, int j) {
  if (s->cold_expiry[i] != s->cold_expiry[j]) return s->cold_expiry[i] < s->cold_expiry[j];
  return s->cold_id[i] < s->cold_id[j];
}

static void cold_swap(Svdd *s, int i, int j) {
  int64_t id = s->cold_id[i];
  double expiry = s->cold_expiry[i];
  s->cold_id[i] = s->cold_id[j], s->cold_id[j] = id;
  s->cold_expiry[i] = s->cold_expiry[j], s->cold_expiry[j] = expiry;
  if (!s->cold_key) return;
  double *p = s->cold_key + (size_t)i * s->d, *q = s->cold_key + (size_t)j * s->d;
  for (int t = 0; t < s->d; t++) {
    double v = p[t];
    p[t] = q[t], q[t] = v;
  }
}

static void cold_sift(Svdd *s, int i) {
  while (i > 0 && cold_before(s, i, (i - 1) / 2)) {
    cold_swap(s, i, (i - 1) / 2);
    i = (i - 1) / 2;
  }
  for (;;) {
    int least = i, left = 2 * i + 1, right = left + 1;
    if (left < s->cold && cold_before(s, left, least)) least = left;
    if (right < s->cold && cold_before(s, right, least)) least = right;
    if (least == i) return;
    cold_swap(s, i, least);
    i = least;
  }
}

int svdd_cold_push(Svdd *s, int64_t id, double expiry, const double *key) {
  if (s->cold == s->cold_room) {
    int room = s->cold_room ? 2 * s->cold_room : 16;
    if (grow(&s->cold_id, (size_t)room, sizeof(int64_t)) || grow(&s->cold_expiry, (size_t)room, sizeof(double)))
      return SVDD_NO_MEMORY;
    if (s->cold_key && grow(&s->cold_key, (size_t)room * (size_t)s->d, sizeof(double))) return SVDD_NO_MEMORY;
    s->cold_room = room;
  }
  int i = s->cold++;
  s->cold_id[i] = id;
  s->cold_expiry[i] = expiry;
  if (s->cold_key) memcpy(s->cold_key + (size_t)i * s->d, key, sizeof(double) * (size_t)s->d);
  cold_sift(s, i);
  return SVDD_OK;
}

void svdd_cold_remove(Svdd *s, int position) {
  int last = --s->cold;
  if (position == last) return;
  cold_swap(s, position, last);
  cold_sift(s, position);
}

void svdd_cold_expire(Svdd *s, int position, double expiry) {
  s->cold_expiry[position] = expiry;
  cold_sift(s, position);
}

/* Positions of the cold tokens that expire by a given clock, soonest branches first; how many there are, up to room. */
int svdd_cold_until(const Svdd *s, double clock, int room, int *positions) {
  int found = 0;
  if (room > 0 && s->cold > 0 && s->cold_expiry[0] <= clock) positions[found++] = 0;
  for (int next = 0; next < found; next++)
    for (int child = 2 * positions[next] + 1; child <= 2 * positions[next] + 2; child++)
      if (child < s->cold && s->cold_expiry[child] <= clock && found < room) positions[found++] = child;
  return found;
}

int svdd_cold_key(Svdd *s, int position, double *key) {
  if (!s->cold_key) return s->fetch(s->fetch_context, s->cold_id[position], key) ? SVDD_FETCH_FAILED : SVDD_OK;
  memcpy(key, s->cold_key + (size_t)position * s->d, sizeof(double) * (size_t)s->d);
  return SVDD_OK;
}
