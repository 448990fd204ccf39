/*
 * Transactions in which everything is added once.
 *
 * A structure declares what it is going to change with tx_own, any number of times: what the transaction has
 * already added or allocated is not added again.
 */
#ifndef TRANSACTION_H
#define TRANSACTION_H

#include "store.h"

void tx_begin(void);
void tx_commit(void);

/* Adds an object, or a part of one, unless it belongs to the transaction. */
void tx_own(void *object, size_t size);

/* A zeroed object that belongs to the transaction. */
void *tx_new(size_t size);
void tx_free(offset object);

/* Adds without checking, at the line where it is used. */
#define tx_add(address, size) pmemobj_tx_add_range_direct((address), (size))

#endif
