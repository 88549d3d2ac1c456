package envconf_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/envconf"
)

type inner struct {
	Life  time.Duration `env:"LIFE" envDefault:"1h" doc:"How long."`
	Size  int64         `env:"SIZE" envDefault:"1MiB"`
	Wrong bool          `env:"WRONG" envDefault:"true"`
}

type outer struct {
	Name   string `env:"NAME"`
	Prefix inner  `envPrefix:"IN_"`
	Plain  struct {
		Count int `env:"COUNT" envDefault:"3"`
	}
	others []string
}

func TestParse(t *testing.T) {
	got, err := envconf.Parse[outer](map[string]string{
		"X_NAME": "n", "X_IN_LIFE": "2d", "X_IN_SIZE": "5KB", "IN_LIFE": "1s", "X_COUNT": "",
	}, "X_")
	want := outer{Name: "n", Prefix: inner{48 * time.Hour, 5000, true}}
	want.Plain.Count = 3
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = envconf.Parse[outer](map[string]string{"X_IN_LIFE": "long", "X_IN_SIZE": "2TiB", "X_COUNT": "many"}, "X_")
	for _, text := range []string{
		`X_IN_LIFE: "long" is not a duration; for example X_IN_LIFE=1h`, `X_IN_SIZE: "2TiB" is not a size in bytes`,
		`X_COUNT: "many" is not a whole number; for example X_COUNT=3`,
	} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("no %q in %v", text, err)
		}
	}
}

func TestDefault(t *testing.T) {
	got := outer{Prefix: inner{Size: 7}}
	envconf.Default(&got)
	if got.Prefix != (inner{time.Hour, 7, false}) || got.Plain.Count != 3 || got.others != nil {
		t.Errorf("%+v", got)
	}
}

func TestVariables(t *testing.T) {
	var names []string
	for _, v := range envconf.Variables(reflect.ValueOf(outer{}), "X_") {
		names = append(names, v.Name+"="+v.Default+v.Doc)
	}
	if got := strings.Join(names, " "); got != "X_NAME= X_IN_LIFE=1hHow long. X_IN_SIZE=1MiB "+
		"X_IN_WRONG=true X_COUNT=3" {
		t.Error(got)
	}
}
