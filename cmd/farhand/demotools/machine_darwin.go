package demotools

import (
	"encoding/binary"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

func readFacts() facts {
	f := facts{platform: "darwin"}
	f.version, _ = unix.Sysctl("kern.osproductversion")
	f.kernel, _ = unix.Sysctl("kern.osrelease")
	if boot, err := unix.SysctlTimeval("kern.boottime"); err == nil {
		f.uptime = time.Since(time.Unix(boot.Unix()))
	}
	// struct loadavg: three numbers of 32 bits, and what they are divided by, of 64
	if b, err := unix.SysctlRaw("vm.loadavg"); err == nil && len(b) >= 24 {
		load := func(i int) float64 {
			return float64(binary.NativeEndian.Uint32(b[4*i:])) / float64(binary.NativeEndian.Uint64(b[16:]))
		}
		f.load = &loadReading{One: load(0), Five: load(1), Fifteen: load(2)}
	}
	if total, err := unix.SysctlUint64("hw.memsize"); err == nil {
		f.memory = &memoryReading{Total: total}
		for _, pages := range []string{"vm.page_free_count", "vm.page_pageable_external_count"} {
			n, _ := unix.SysctlUint32(pages)
			f.memory.Available += uint64(n) * uint64(os.Getpagesize())
		}
	}
	return f
}
