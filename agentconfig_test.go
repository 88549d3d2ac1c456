package farhand

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/envconf"
	"github.com/farhand/farhand/registry/memory"
)

func TestBuiltinsThatAreEnabled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		value string
		want  []string
		wrong string
	}{
		{"", []string{"sessions", "time"}, ""},
		{"time", []string{"time"}, ""},
		{"none", []string{}, ""},
		{"none,time", nil, "FARHAND_BUILTIN_TOOLS"},
		{"time,none", nil, "FARHAND_BUILTIN_TOOLS"},
	} {
		cfg, err := LoadConfig([]string{"FARHAND_MODEL=m", "FARHAND_BUILTIN_TOOLS=" + c.value})
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%q: %v", c.value, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.value, err)
			continue
		}
		g := Gateway{cfg: cfg}
		enabled, err := g.localTools(memory.New(memory.Options{}), nil)
		if err != nil {
			t.Errorf("%q: %v", c.value, err)
		} else if !slices.Equal(enabled.Names(), c.want) {
			t.Errorf("%q: %v, want %v", c.value, enabled.Names(), c.want)
		}
	}
}

func TestSwitchesOfTheAgent(t *testing.T) {
	t.Parallel()
	cfg, err := LoadConfig(nil)
	if err != nil || cfg.Unconfirmed || !cfg.AllowDebug {
		t.Errorf("by default: %+v, %v", cfg.AgentConfig, err)
	}
	cfg, err = LoadConfig([]string{"FARHAND_AGENT_UNCONFIRMED=true", "FARHAND_ALLOW_DEBUG=false"})
	if err != nil || !cfg.Unconfirmed || cfg.AllowDebug {
		t.Errorf("switched over: %+v, %v", cfg.AgentConfig, err)
	}
}

// The tools of a user's other sessions are refused at start where no credential can name a user, rather than never
// offered.
func TestOtherSessionsNeedUsers(t *testing.T) {
	t.Parallel()
	cfg, err := LoadConfig([]string{"FARHAND_OTHER_SESSIONS=true"})
	if err != nil || !cfg.OtherSessions {
		t.Errorf("keys name users: %v", err)
	}
	_, err = New(t.Context(), cfg, WithAuthenticator(auth.Anonymous{}))
	if err == nil || !strings.Contains(err.Error(), "FARHAND_OTHER_SESSIONS") ||
		!strings.Contains(err.Error(), "names no users") {
		t.Errorf("%v", err)
	}
}

// An invalid value is reported under its variable, which is found by the name and the type of the field.
func TestFieldsOfATypeHaveDifferentNames(t *testing.T) {
	t.Parallel()
	seen := make(map[string]string)
	for _, v := range envconf.Variables(reflect.ValueOf(Config{}), EnvPrefix) {
		field := v.Field.Name + " " + v.Field.Type.String()
		if seen[field] != "" {
			t.Errorf("%s and %s are both %s", seen[field], v.Name, field)
		}
		seen[field] = v.Name
	}
}
