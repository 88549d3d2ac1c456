package redisconn

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryCommandIsTried: what the store, the bus and their scripts send is in the table of commands, but for exports
// and imports: no pod does them, but an operator.
func TestEveryCommandIsTried(t *testing.T) {
	tried := make(map[string]bool)
	for _, line := range commands {
		tried[strings.Fields(line)[0]] = true
	}
	seen := 0
	for pattern, command := range map[string]string{
		"../../lua/*.lua": `redis\.p?call\(['"](\w+)['"]`, "../../bus/lua/*.lua": `redis\.p?call\(['"](\w+)['"]`,
		"../../*.go": `\.Do\((?:ctx, )?"([A-Z]+)"`, "../../bus/*.go": `\.Do\((?:ctx, )?"([A-Z]+)"`,
	} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			switch filepath.Base(file) {
			case "export.go", "import.go":
				continue
			}
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range regexp.MustCompile(command).FindAllStringSubmatch(string(text), -1) {
				if seen++; !tried[found[1]] {
					t.Errorf("%s sends %s, which is not tried", file, found[1])
				}
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d commands were found", seen)
	}
}
