package envconf_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farhand/farhand/internal/envconf"
	"github.com/farhand/farhand/internal/secret"
)

type guarded struct {
	Key  secret.Text `env:"KEY"`
	Path string      `env:"PATH"`
	In   struct {
		Password secret.Text `env:"PASSWORD"`
	} `envPrefix:"IN_"`
}

// Every secret may stand in a file: its content counts, without line breaks at the end. Other settings may not.
func TestSecretsOfFiles(t *testing.T) {
	file := writeFile(t, "s3cret of a file \r\n\n")
	got, err := envconf.Parse[guarded](map[string]string{
		"X_KEY_FILE": file, "X_IN_PASSWORD_FILE": file, "X_IN_PASSWORD": "", "X_PATH_FILE": file,
	}, "X_")
	if err != nil || got.Key != "s3cret of a file " || got.In.Password != got.Key || got.Path != "" {
		t.Errorf("%q, %q, %q, %v", string(got.Key), string(got.In.Password), got.Path, err)
	}
	environment := map[string]string{"X_KEY_FILE": file}
	if _, err := envconf.Parse[guarded](environment, "X_"); err != nil || len(environment) != 1 {
		t.Errorf("the caller's environment has changed: %d variables, %v", len(environment), err)
	}
}

// A file that cannot be the secret is an error that names the variable and the remedy, and repeats no content.
func TestSecretsOfFilesThatAreWrong(t *testing.T) {
	const canary = "canary-of-a-secret"
	for name, tt := range map[string]struct{ path, value, want string }{
		"missing":   {filepath.Join(t.TempDir(), "none"), "", "no such file"},
		"too long":  {writeFile(t, canary+strings.Repeat("x", 64<<10)), "", "longer than 64 KiB"},
		"empty":     {writeFile(t, "\n"), "", "the file is empty"},
		"binary":    {writeFile(t, canary+"\x00"), "", "zero byte"},
		"a folder":  {t.TempDir(), "", "not a regular file"},
		"both":      {writeFile(t, canary), canary, "X_KEY and X_KEY_FILE are both set: remove one of them"},
		"both, bad": {filepath.Join(t.TempDir(), "none"), canary, "both set"},
	} {
		got, err := envconf.Parse[guarded](map[string]string{
			"X_KEY_FILE": tt.path, "X_KEY": tt.value, "X_IN_PASSWORD_FILE": tt.path,
		}, "X_")
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "X_KEY_FILE") ||
			strings.Contains(err.Error(), canary) || got.Key != secret.Text(tt.value) {
			t.Errorf("%s: %v, %q", name, err, string(got.Key))
		}
		if tt.value == "" && !strings.Contains(err.Error(), "X_IN_PASSWORD_FILE: ") {
			t.Errorf("%s: the error of the second file is missing: %v", name, err)
		}
	}
	longest := map[string]string{"K_FILE": writeFile(t, strings.Repeat("x", 64<<10))}
	if text, err := envconf.Secret(longest, "K"); err != nil || len(text) != 64<<10 {
		t.Errorf("a file of 64 KiB: %d bytes, %v", len(text), err)
	}
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
