package docker

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/sandbox/docker/dockertest"
)

// startRegistry starts a registry with one image, and returns the name of that and the number of requests.
func startRegistry(t *testing.T) (name string, asked *atomic.Int64) {
	t.Helper()
	layer, err := dockertest.Busybox()
	if err != nil {
		t.Fatal(err)
	}
	blobs := map[string][]byte{}
	const types = "application/vnd.docker."
	describe := func(kind string, body []byte) map[string]any {
		digest := fmt.Sprintf("sha256:%x", sha256.Sum256(body))
		blobs[digest] = body
		return map[string]any{"mediaType": types + kind, "size": len(body), "digest": digest}
	}
	files := describe("image.rootfs.diff.tar", layer.Bytes())
	config, _ := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"rootfs": map[string]any{"type": "layers", "diff_ids": []any{files["digest"]}},
	})
	manifest, _ := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": types + "distribution.manifest.v2+json",
		"config": describe("container.image.v1+json", config), "layers": []any{files},
	})
	tag := describe("distribution.manifest.v2+json", manifest)["digest"].(string)
	asked = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		parts := strings.Split(r.URL.Path, "/")
		digest := parts[len(parts)-1]
		if digest == "tiny" {
			digest = tag
		}
		body, ok := blobs[digest]
		switch {
		case r.URL.Path == "/v2/":
		case !ok:
			http.NotFound(w, r)
		default:
			if strings.Contains(r.URL.Path, "/manifests/") {
				w.Header().Set("Content-Type", types+"distribution.manifest.v2+json")
			}
			w.Header().Set("Docker-Content-Digest", digest)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
		}
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://") + "/farhand-test:tiny", asked
}

func TestImagesArePulledIfTheyMayBe(t *testing.T) {
	t.Parallel()
	needEngine(t)
	name, asked := startRegistry(t)
	f := setUp(t, func(c *Config) { c.Image = name })
	if _, _, _, err := f.run(t.Context(), script("true")); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("an image that is not there: %v", err)
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the registry was asked %d times", n)
	}
	f = setUp(t, func(c *Config) { c.Image, c.Pull = name, true })
	if out := f.sh("echo pulled"); out != "pulled" || asked.Load() == 0 {
		t.Errorf("%q", out)
	}
}
