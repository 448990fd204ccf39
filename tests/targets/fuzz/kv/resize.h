/*
 * Resizing the hash map: an array of buckets is made, then each change of the map moves one bucket, and at last
 * the new array takes the place of the old one.
 */
#ifndef RESIZE_H
#define RESIZE_H

#include <stdint.h>

/* Begins, for a number of buckets that is asked for. */
void hash_resize(uint64_t buckets);

/* Goes on, if the map is being resized. */
void hash_resize_step(void);

/* Begins, if the map has too many or too few buckets for what it holds. */
void hash_grow_if_full(void);
void hash_shrink_if_empty(void);

/* Repairs what a crash left, and ends what was begun; makes the first array. */
void hash_resize_recover(void);

#endif
