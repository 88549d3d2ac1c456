package soak_test

import (
	"archive/tar"
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/sandbox/docker/dockertest"
)

// composeImages are the images of deploy/compose.yaml as this machine can make them: the gateway from its sources, the
// others from Debian's packages, with the paths, users and commands of the originals. There is no package of Grafana.
func composeImages(t *testing.T, e *dockertest.Engine, farhand string) {
	t.Helper()
	for name, i := range map[string]struct {
		programs map[string]string // from here to there
		folders  map[string]int    // with their owners
		changes  []string
	}{
		"farhand:local": {
			map[string]string{farhand: "/farhand"}, map[string]int{"data": 65532},
			[]string{
				"USER 65532:65532", `ENTRYPOINT ["/farhand"]`, `CMD ["serve"]`, "ENV FARHAND_DATA_DIR=/data",
				`HEALTHCHECK --interval=5s --timeout=4s --start-period=10s --retries=3 CMD ["/farhand", "health"]`,
			},
		},
		"redis:7.4-alpine": {
			map[string]string{
				installed("redis-server"): "/bin/redis-server", installed("redis-cli"): "/bin/redis-cli",
				installed("busybox"): "/bin/sh", installed("grep"): "/bin/grep",
			},
			map[string]int{"data": 0, "tmp": 0}, []string{"ENV PATH=/bin"},
		},
		"caddy:2.10-alpine": {
			map[string]string{installed("caddy"): "/bin/caddy"}, map[string]int{"data": 0, "config": 0, "tmp": 0},
			[]string{
				"ENV PATH=/bin XDG_DATA_HOME=/data XDG_CONFIG_HOME=/config",
				`CMD ["caddy", "run", "--config", "/etc/caddy/Caddyfile", "--adapter", "caddyfile"]`,
			},
		},
		"prom/prometheus:v3.5.0": {
			map[string]string{installed("prometheus"): "/bin/prometheus"},
			map[string]int{"prometheus": 65534, "tmp": 65534},
			[]string{
				"USER 65534", `ENTRYPOINT ["/bin/prometheus"]`,
				`CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]`,
			},
		},
	} {
		if err := e.ImportFiles(name, archive(t, i.programs, i.folders), i.changes...); err != nil {
			t.Fatal(err)
		}
	}
}

// archive returns programs with the libraries that they load, and folders, as a tar archive.
func archive(t *testing.T, programs map[string]string, folders map[string]int) *bytes.Buffer {
	t.Helper()
	files, owners := map[string]string{}, maps.Clone(folders)
	add := func(from, to string) {
		files[to] = from
		for dir := path.Dir(to); dir != "/"; dir = path.Dir(dir) {
			owners[dir[1:]] = 0 // else only root may enter it
		}
	}
	for from, to := range programs {
		add(from, to)
		for _, library := range libraries(from) {
			add(library, library)
		}
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, owner := range owners {
		must(t, w.WriteHeader(&tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o755,
			Uid: owner, Gid: owner}))
	}
	for to, from := range files {
		body, err := os.ReadFile(from)
		must(t, err)
		must(t, w.WriteHeader(&tar.Header{Name: to[1:], Mode: 0o755, Size: int64(len(body))}))
		_, err = w.Write(body)
		must(t, err)
	}
	must(t, w.Close())
	return &out
}

// libraries returns the libraries of a program, none of a static one.
func libraries(program string) (all []string) {
	out, _ := exec.Command("ldd", program).Output()
	for _, word := range strings.Fields(string(out)) {
		if filepath.IsAbs(word) {
			all = append(all, word)
		}
	}
	return all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
