package dockertest

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/moby/moby/client"
)

// Image is the image that Start imports: busybox, with a link for each of its programs.
const Image = "farhand-test:busybox"

// Import imports an image of busybox. changes are Dockerfile lines such as ENV, USER, VOLUME or ENTRYPOINT.
func (e *Engine) Import(name string, changes ...string) error {
	files, err := Busybox()
	if err != nil {
		return err
	}
	return e.ImportFiles(name, files, changes...)
}

// ImportFiles imports an image whose files are a tar archive. changes are those of Import.
func (e *Engine) ImportFiles(name string, files io.Reader, changes ...string) error {
	api, err := e.Client()
	if err != nil {
		return err
	}
	defer api.Close()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	image, tag, _ := strings.Cut(name, ":")
	answer, err := api.ImageImport(ctx, client.ImageImportSource{Source: files, SourceName: "-"}, image,
		client.ImageImportOptions{Tag: tag, Changes: changes})
	if err != nil {
		return err
	}
	defer answer.Close()
	for d := json.NewDecoder(answer); d.More(); {
		var line struct{ Error string }
		if err := d.Decode(&line); err != nil {
			return err
		}
		if line.Error != "" {
			return fmt.Errorf("dockertest: import the image: %s", line.Error)
		}
	}
	return nil
}

// Busybox returns the files of the image as a tar archive.
func Busybox() (*bytes.Buffer, error) {
	path, err := program("busybox")
	if err != nil {
		return nil, err
	}
	body, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	applets, err := exec.Command(path, "--list").Output()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, dir := range []string{"bin/", "dev/", "etc/", "proc/", "sys/", "tmp/", "workspace/", "anybody/"} {
		mode := int64(0o755)
		if dir == "anybody/" {
			mode = 0o777 // only a read-only root protects it
		}
		if err := w.WriteHeader(&tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: mode}); err != nil {
			return nil, err
		}
	}
	if err := w.WriteHeader(&tar.Header{Name: "bin/busybox", Mode: 0o4755, Size: int64(len(body))}); err != nil {
		return nil, err
	}
	if _, err := w.Write(body); err != nil {
		return nil, err
	}
	for _, name := range strings.Fields(string(applets)) {
		if name == "busybox" {
			continue
		}
		link := &tar.Header{Name: "bin/" + name, Typeflag: tar.TypeSymlink, Linkname: "busybox"}
		if err := w.WriteHeader(link); err != nil {
			return nil, err
		}
	}
	return &out, w.Close()
}
