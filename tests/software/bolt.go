// bbolt, the database of etcd: four transactions, each with one key.
//
//	bolt run DIR [nosync]    prints `saved KEY` after each transaction
//	bolt check DIR           fails unless the database is consistent; prints its keys
package main

import "C" // makes the program dynamic, so that it is recorded

import (
	"fmt"
	"os"

	bolt "go.etcd.io/bbolt"
)

func require(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	path := os.Args[2] + "/bolt.db"
	bucket := []byte("records")
	if os.Args[1] == "check" {
		if _, err := os.Stat(path); os.IsNotExist(err) {
			return
		}
		db, err := bolt.Open(path, 0o644, nil)
		require(err)
		require(db.View(func(tx *bolt.Tx) error {
			for err := range tx.Check() {
				return err
			}
			records := tx.Bucket(bucket)
			if records == nil {
				return nil
			}
			return records.ForEach(func(key, value []byte) error {
				fmt.Println(string(key))
				return nil
			})
		}))
		return
	}
	db, err := bolt.Open(path, 0o644, nil)
	require(err)
	db.NoSync = len(os.Args) > 3
	for number := 0; number < 4; number++ {
		key := fmt.Sprintf("key%d", number)
		require(db.Update(func(tx *bolt.Tx) error {
			records, err := tx.CreateBucketIfNotExists(bucket)
			if err != nil {
				return err
			}
			return records.Put([]byte(key), make([]byte, 3000))
		}))
		fmt.Printf("saved %s\n", key)
	}
}
