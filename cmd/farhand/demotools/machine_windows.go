package demotools

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/windows"
)

func readFacts() facts {
	v := windows.RtlGetVersion()
	version := fmt.Sprintf("%d.%d.%d", v.MajorVersion, v.MinorVersion, v.BuildNumber)
	f := facts{
		platform: "Microsoft Windows", version: version, kernel: version, uptime: windows.DurationSinceBoot(),
	}
	var status struct { // MEMORYSTATUSEX
		length, load     uint32
		total, available uint64
		_                [5]uint64
	}
	status.length = uint32(unsafe.Sizeof(status))
	read := windows.NewLazySystemDLL("kernel32.dll").NewProc("GlobalMemoryStatusEx")
	if ok, _, _ := read.Call(uintptr(unsafe.Pointer(&status))); ok != 0 {
		f.memory = &memoryReading{Total: status.total, Available: status.available}
	}
	return f
}
