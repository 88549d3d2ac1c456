package main

import (
	"reflect"
	"slices"
	"strings"

	"github.com/farhand/farhand"
)

// envPrefix starts the name of every variable the program reads.
const envPrefix = farhand.EnvPrefix

// clientVariables are read by the other commands, so `serve` must not call them unknown.
var clientVariables = []variable{
	{Name: envPrefix + "URL", Default: "http://127.0.0.1:8080",
		Doc: "The gateway that device, call, chat, tools and sessions talk to."},
}

// unknownVariables returns the FARHAND_ variables that mean nothing, most likely misspelt, each with the one that was
// probably meant, or nothing.
func unknownVariables(environ []string) (names []string, meant map[string]string) {
	var known []string
	for _, v := range variables() {
		known = append(known, v.Name)
	}
	meant = make(map[string]string)
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, envPrefix) && !slices.Contains(known, name) {
			names = append(names, name)
			meant[name] = nearest(name, known)
		}
	}
	slices.Sort(names)
	return names, meant
}

// variable documents one environment variable.
type variable struct {
	Name    string `json:"name"`
	Default string `json:"default"`
	Doc     string `json:"meaning"`
	Value   string `json:"value,omitempty"` // set when it differs from the default; secrets are masked

	secret bool
}

// variables lists everything the program reads from its environment, from the tags of farhand.Config.
func variables() []variable {
	var all []variable
	for _, f := range reflect.VisibleFields(reflect.TypeFor[farhand.Config]()) {
		if f.Anonymous {
			continue
		}
		all = append(all, variable{
			Name: envPrefix + f.Tag.Get("env"), Default: f.Tag.Get("envDefault"), Doc: f.Tag.Get("doc"),
			secret: f.Type == reflect.TypeFor[farhand.Secret](),
		})
	}
	return append(all, clientVariables...)
}
