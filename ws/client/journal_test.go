package client

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A journal has what was put into it, also after a crash in the midst of a line, and its file stays small.
func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "device.jsonl")
	open := func() *journal {
		t.Helper()
		j, err := openJournal(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(j.close)
		return j
	}
	put := func(j *journal, key string, value any) {
		t.Helper()
		if err := j.put(key, value, false); err != nil {
			t.Fatal(err)
		}
	}
	j := open()
	put(j, keySession, keptSession{"s", "<secret>"})
	put(j, "call/1", keptCall{At: 1})
	put(j, "call/2", keptCall{At: 2, Frame: `{"type":"tool_result"}`})
	put(j, "call/1", nil)
	j.close()
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(`["call/3",{"at":3`); err != nil {
		t.Fatal(err)
	}
	_ = file.Close()

	j = open()
	if len(j.values) != 2 || string(j.values[keySession]) != `{"id":"s","token":"<secret>"}` ||
		string(j.values["call/2"]) != `{"at":2,"frame":"{\"type\":\"tool_result\"}"}` {
		t.Fatalf("it has %s", j.values)
	}
	for i := range 5000 {
		put(j, "call/9", keptCall{At: int64(i), Frame: string(bytes.Repeat([]byte("x"), 1000))})
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() > 2*spareBytes || info.Mode().Perm() != 0o600 {
		t.Fatalf("the file: %v, %v", info, err)
	}
	j = open()
	want := fmt.Sprintf(`{"at":4999,"frame":"%s"}`, bytes.Repeat([]byte("x"), 1000))
	if string(j.values["call/9"]) != want {
		t.Fatalf("it has %s", j.values["call/9"])
	}
}
