// A mapped file in Go: records, then the number of records, each synced before the next. With `wrong`, the number is
// synced before the record.
package main

// A program without C would be linked statically.

import "C"

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"
)

const (
	records = 4
	length  = 512
	page    = 4096
)

func require(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func sync(bytes []byte) {
	_, _, number := syscall.Syscall(syscall.SYS_MSYNC, uintptr(unsafe.Pointer(&bytes[0])), uintptr(len(bytes)), syscall.MS_SYNC)
	if number != 0 {
		require(number)
	}
}

func main() {
	isRun := os.Args[1] == "run"
	isWrong := len(os.Args) > 3 && os.Args[3] == "wrong"
	file, err := os.OpenFile(os.Args[2], os.O_RDWR|os.O_CREATE, 0600)
	require(err)
	require(file.Truncate(2 * page))
	memory, err := syscall.Mmap(int(file.Fd()), 0, 2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	require(err)
	known := int(memory[0])
	if isRun {
		known = records
	}
	for number := 1; number <= known; number++ {
		for at := page + (number-1)*length; at < page+number*length; at++ {
			if isRun {
				memory[at] = byte('a' + number)
			} else if memory[at] != byte('a'+number) {
				fmt.Fprintln(os.Stderr, "record", number, "is damaged")
				os.Exit(1)
			}
		}
		if isRun {
			if !isWrong {
				sync(memory[page:])
			}
			memory[0] = byte(number)
			sync(memory[:page])
			if isWrong {
				sync(memory[page:])
			}
		}
	}
}
