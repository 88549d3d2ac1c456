// Command release makes what goes into a release beside the program: the licences of all that is in it (notices), and
// its bill of materials (sbom). .goreleaser.yaml runs it. Its tests check the licences of the dependencies and, with
// -release, a whole release.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	switch {
	case len(args) == 1 && args[0] == "notices":
		return writeNotices(out)
	case len(args) == 4 && args[0] == "sbom":
		f, err := os.Create(args[3])
		if err != nil {
			return err
		}
		return errors.Join(writeSBOM(f, args[1], args[2]), f.Close())
	}
	return errors.New("usage: release notices, or release sbom PROGRAM VERSION DOCUMENT")
}
