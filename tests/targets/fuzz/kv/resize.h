/*
 * Resizing the hash map: a new array of buckets is allocated, then each change of the map moves one bucket, and
 * finally the new array replaces the old one.
 */
#ifndef RESIZE_H
#define RESIZE_H

#include <stdint.h>

/* Starts a resize to a requested number of buckets. */
void hash_resize(uint64_t buckets);

/* Continues, if the map is being resized. */
void hash_resize_step(void);

/* Starts a resize if the map has too many or too few buckets for its content. */
void hash_grow_if_full(void);
void hash_shrink_if_empty(void);

/* Repairs the map after a crash, and completes a resize; creates the first array. */
void hash_resize_recover(void);

#endif
