package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// callPart is an image, a sound or a file that a tool returned.
type callPart struct {
	Type     string `json:"type"`
	MIMEType string `json:"mime_type"`
	Name     string `json:"name"`
	Data     []byte `json:"data"`
	URL      string `json:"url"`
	Size     int64  `json:"size"`
}

// printParts prints a line about each part. With a file name the bytes are saved, of the first part there, of each
// other one beside it.
func (a *application) printParts(parts []callPart, file string) error {
	for i, p := range parts {
		where := "use --output FILE to save it"
		switch {
		case p.URL != "":
			where = p.URL
		case len(p.Data) == 0:
			where = "its bytes were not kept"
		case file != "":
			path := numbered(file, i)
			if err := os.WriteFile(path, p.Data, 0o600); err != nil {
				return fmt.Errorf("save what the tool returned: %w", err)
			}
			where = "saved to " + path
		}
		fmt.Fprintln(a.err, printable(fmt.Sprintf("[%s: %s]", p.describe(), where)))
	}
	return nil
}

// describe returns what the part is.
func (p callPart) describe() string {
	what := fmt.Sprintf("%s %s, %s", p.Type, p.MIMEType, shownSize(p.Size))
	if p.Name != "" {
		what += ", " + p.Name
	}
	return what
}

// numbered returns the name of the file for a part: a.png, a-2.png, a-3.png.
func numbered(file string, i int) string {
	if i == 0 {
		return file
	}
	end := filepath.Ext(file)
	return fmt.Sprintf("%s-%d%s", strings.TrimSuffix(file, end), i+1, end)
}

// shownSize returns a number of bytes as people read it.
func shownSize(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d B", n)
	case n < 1000*1000:
		return fmt.Sprintf("%.0f kB", float64(n)/1000)
	default:
		return fmt.Sprintf("%.1f MB", float64(n)/1000/1000)
	}
}
