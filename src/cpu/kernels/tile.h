/* SPDX-License-Identifier: MIT
 *
 * Tiles: rows that lie next to each other and whose elements lie apart, as the pixels of images with channels first. A
 * lane works on a row, so that nothing has to be turned over. The lanes of a sum (docs/numerics.md) are vectors here,
 * and the tree that adds them up has the same branches as V(sum4), so that the bits are those of contiguous rows. */

enum {
  K(SIDE) = 4,        /* vectors of rows in a whole tile */
  K(TILE) = 4 * LANES /* rows of one                     */
};

/* A tile as it is read: element c of row i is element i at x + c*step. */
typedef struct {
  const char *x;
  int64_t step;
  int rows;
} K(tile);

/* Rows of the tile that a vector has: LANES but in the last one. */
INLINE int K(rows_in)(const K(tile) * t, int vector) {
  const int left = t->rows - vector * LANES;
  return left < LANES ? left : LANES;
}

/* One vector for each of some, or all, of the tile's vectors of rows. */
typedef struct {
  VEC of[K(SIDE)];
} K(side);

/* The leaves of the tree of a sum over n elements: those of its lanes that have elements, and as many more as make a
 * power of two, at least two. */
INLINE int K(tree_leaves)(int64_t n) {
  int leaves = 2;
  while (leaves < n && leaves < K(QUAD))
    leaves *= 2;
  return leaves;
}

/* The leaf after this one, when those that are added first follow each other: 0, half, a quarter, three quarters, ...
 */
INLINE int K(next_leaf)(int leaf, int leaves) {
  int bit = leaves / 2;
  while (leaf & bit) {
    leaf ^= bit;
    bit /= 2;
  }
  return leaf | bit;
}

/* Adds the elements of one leaf: c, c + K(QUAD), ... */
INLINE K(side) K(sum_leaf)(const char *x, int64_t step, int64_t c, int64_t k, int vectors, int n, const VEC *mean,
                           K(summand) what) {
  const VEC zero = V(set)(0);
  K(side) acc = {{zero, zero, zero, zero}};
  for (; c < k; c += K(QUAD)) {
    const char *at = x + c * step;
    acc.of[0] = K(add_term)(acc.of[0], K(load)(at, 0, n, false), mean[0], LANES, what);
    if (vectors == 1) continue;
    acc.of[1] = K(add_term)(acc.of[1], K(load)(at, LANES, n, false), mean[1], LANES, what);
    acc.of[2] = K(add_term)(acc.of[2], K(load)(at, 2 * LANES, n, false), mean[2], LANES, what);
    acc.of[3] = K(add_term)(acc.of[3], K(load)(at, 3 * LANES, n, false), mean[3], LANES, what);
  }
  return acc;
}

INLINE K(side) K(add_sides)(K(side) a, K(side) b, int vectors) {
  a.of[0] = V(add)(a.of[0], b.of[0]);
  if (vectors == 1) return a;
  a.of[1] = V(add)(a.of[1], b.of[1]);
  a.of[2] = V(add)(a.of[2], b.of[2]);
  a.of[3] = V(add)(a.of[3], b.of[3]);
  return a;
}

/* Each row's sum over its first k elements. vectors: 4 of a whole tile, or 1, at `first`, of n rows. Two leaves at a
 * time: those that are added to each other first. */
INLINE void K(sum_tile)(VEC *sums, const K(tile) * t, int first, int vectors, int n, int64_t k, const VEC *mean,
                        K(summand) what) {
  K(side) done[6], acc;
  const int leaves = K(tree_leaves)(k), half = leaves / 2;
  const char *x = t->x + first * LANES * T_SIZE;
  for (int i = 0, leaf = 0, level; i < half; i++, leaf = K(next_leaf)(leaf, half)) {
    acc = K(sum_leaf)(x, t->step, leaf, k, vectors, n, mean, what);
    acc = K(add_sides)(acc, K(sum_leaf)(x, t->step, leaf + half, k, vectors, n, mean, what), vectors);
    for (level = 0; i >> level & 1; level++)
      acc = K(add_sides)(done[level], acc, vectors);
    done[level] = acc;
  }
  sums[0] = acc.of[0];
  if (vectors > 1) sums[1] = acc.of[1], sums[2] = acc.of[2], sums[3] = acc.of[3];
}

NOINLINE void K(sum_whole_tile)(VEC *sums, const K(tile) * t, int64_t k) {
  const VEC none[K(SIDE)] = {V(set)(0), V(set)(0), V(set)(0), V(set)(0)};
  K(sum_tile)(sums, t, 0, K(SIDE), LANES, k, none, (K(summand)){false});
}

NOINLINE void K(square_whole_tile)(VEC *sums, const K(tile) * t, int64_t k) {
  const VEC none[K(SIDE)] = {V(set)(0), V(set)(0), V(set)(0), V(set)(0)};
  K(sum_tile)(sums, t, 0, K(SIDE), LANES, k, none, (K(summand)){.squares = true});
}

NOINLINE void K(centre_whole_tile)(VEC *sums, const K(tile) * t, int64_t k, const VEC *mean) {
  K(sum_tile)(sums, t, 0, K(SIDE), LANES, k, mean, (K(summand)){.squares = true, .centred = true});
}

/* The same of one vector of a tile that is not whole. */
NOINLINE void K(sum_some)(VEC *sums, const K(tile) * t, int vector, int64_t k, const VEC *mean, bool squares) {
  const int n = K(rows_in)(t, vector);
  K(sum_tile)(sums, t, vector, 1, n, k, mean, (K(summand)){.squares = squares, .centred = true});
}

static void K(sum_rows)(VEC *sums, const K(tile) * t, int64_t k) {
  const VEC none = V(set)(0);
  if (t->rows == K(TILE)) {
    K(sum_whole_tile)(sums, t, k);
    return;
  }
  for (int v = 0; v * LANES < t->rows; v++)
    K(sum_some)(sums + v, t, v, k, &none, false);
}

/* mean: NULL: of the elements as they are. */
static void K(square_rows)(VEC *sums, const K(tile) * t, int64_t k, const VEC *mean) {
  const VEC none = V(set)(0);
  if (t->rows == K(TILE) && mean) {
    K(centre_whole_tile)(sums, t, k, mean);
  } else if (t->rows == K(TILE)) {
    K(square_whole_tile)(sums, t, k);
  } else {
    for (int v = 0; v * LANES < t->rows; v++)
      K(sum_some)(sums + v, t, v, k, mean ? mean + v : &none, true);
  }
}
