"""Declares the compiled core to cffi; run by the package build."""

from __future__ import annotations

from pathlib import Path

from cffi import FFI

CORE = Path("memory/svdd/core")
DECLARATIONS = """
typedef int (*svdd_fetch)(void *context, int64_t id, double *key);
typedef struct {
  int d; double C; double full;
  int n; int room; int margin_room; int token_room;
  double *x; double *a; double *cap; double *g; int *mult; unsigned char *status;
  int m; int *members;
  double r; double scale; int solved; long operations; long events; long reexamined; long readmitted;
  long returns;
  int path; int force;
  int tokens; int64_t *token_id; int *token_location;
  int cold; int64_t *cold_id; double *cold_expiry; double *cold_key; double drift; double drift_low;
  int rule;
  ...;
} Svdd;
Svdd *svdd_new(int d, double C, double sigma, int keep_cold_keys);
void svdd_free(Svdd *s);
void svdd_set_fetch(Svdd *s, svdd_fetch fetch, void *context);
int svdd_cold_push(Svdd *s, int64_t id, double expiry, const double *key);
int svdd_cold_until(const Svdd *s, double clock, int room, int *positions);
double svdd_gradient_at(const Svdd *s, const double *key);
void svdd_gradients_at(const Svdd *s, const double *queries, int count, double *out);
void svdd_score(const Svdd *s, const double *queries, int count, double *out);
void svdd_weights(const Svdd *s, const double *queries, int count, double *out);
void svdd_exact_gradient(int n, int d, const double *x, const double *a, double sigma, int count, const double *queries,
                         double r, double *out);
double svdd_tolerance(const Svdd *s);
int svdd_admit_many(Svdd *s, const double *keys, const int64_t *ids, int count, int *done);
int svdd_delete(Svdd *s, const int64_t *ids, int count);
int svdd_prune(Svdd *s, int *moved);
#define LDBL_MANT_DIG ...
static const int SVDD_FETCH_FAILED; static const int SVDD_NO_MEMORY;
int svdd_load(Svdd *s, int n, const double *keys, const double *mass, int tokens, const int64_t *ids,
              const int *location, double r, int solved);
extern "Python" int svdd_fetch_key(void *context, int64_t id, double *key);
"""

builder = FFI()
builder.cdef(DECLARATIONS)
builder.set_source(
    "memory.svdd._core",
    '#include "svdd.h"',
    sources=[str(CORE / name) for name in ("store.c", "kernel.c", "factor.c", "walk.c", "upkeep.c", "memory.c")],
    include_dirs=[str(CORE)],
    # No contraction and no reassociation: the same bits on every processor that follows IEEE 754.
    extra_compile_args=["-O3", "-std=c11", "-ffp-contract=off"],
)
