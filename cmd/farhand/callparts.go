package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
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
func (a *application) printParts(ctx context.Context, r *remote, parts []callPart, file string) error {
	for i, p := range parts {
		where := "use --output FILE to save it"
		switch {
		case p.URL != "":
			if where = p.link(r); file == "" {
				break
			}
			path := numbered(file, i)
			if err := download(ctx, where, path); err != nil {
				return err
			}
			where = "saved to " + path
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

// download saves what an address has.
func download(ctx context.Context, address, path string) (err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return fmt.Errorf("fetch what the tool returned: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("fetch what the tool returned: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("fetch what the tool returned: %s (has the link expired?)", resp.Status)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("save what the tool returned: %w", err)
	}
	_, err = io.Copy(f, resp.Body)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("save what the tool returned: %w", err)
	}
	return nil
}

// link returns where the part can be fetched; empty: nowhere.
func (p callPart) link(r *remote) string {
	if strings.HasPrefix(p.URL, "/") {
		return r.base() + p.URL
	}
	return p.URL
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
