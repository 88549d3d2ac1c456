package gcfloor

import (
	"os"
	"testing"
	"unsafe"
)

// What is reserved takes no memory, also where Go has cleared it.
func TestTheFloorIsNotResident(t *testing.T) {
	floor := make([]byte, floorBytes)
	for i := range floor { // as if it were cleared
		floor[i] = 0
	}
	begin := uintptr(unsafe.Pointer(&floor[0]))
	if before := resident(t, begin); before < floorBytes/2 {
		t.Fatalf("%d bytes are resident", before)
	}
	untouched(floor)
	if after := resident(t, begin); after > floorBytes/8 {
		t.Errorf("%d bytes are resident", after)
	}
}

// resident returns how much of floorBytes from an address on is resident.
func resident(t *testing.T, begin uintptr) (bytes int) {
	t.Helper()
	pagemap, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Skip(err)
	}
	defer pagemap.Close()
	page := os.Getpagesize()
	entries := make([]byte, floorBytes/page*8)
	if _, err := pagemap.ReadAt(entries, int64(begin)/int64(page)*8); err != nil {
		t.Fatal(err)
	}
	for i := 7; i < len(entries); i += 8 {
		if entries[i]&0x80 != 0 { // the page is present, see pagemap.rst of Linux
			bytes += page
		}
	}
	return bytes
}
