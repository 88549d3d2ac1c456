package sandbox

import (
	"io"
	"iter"
	"os"
)

// readStep is how many names are read of a folder at a time.
const readStep = 64

// Entries returns what is in a folder, in no order. However many names it has, few of them are in memory at a time.
// What is removed or made meanwhile may or may not be among them. An error is the last of it.
func Entries(dir string) iter.Seq2[os.DirEntry, error] {
	return func(yield func(os.DirEntry, error) bool) {
		f, err := os.Open(dir)
		if err != nil {
			yield(nil, err)
			return
		}
		defer f.Close() //nolint:errcheck // it was only read
		for {
			entries, err := f.ReadDir(readStep)
			for _, e := range entries {
				if !yield(e, nil) {
					return
				}
			}
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}
