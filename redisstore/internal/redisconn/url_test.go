package redisconn

import (
	"reflect"
	"strings"
	"testing"
)

func TestParseURL(t *testing.T) {
	for raw, want := range map[string]address{
		"redis://localhost":           {hosts: []string{"localhost:6379"}},
		"redis://localhost:6380/2":    {hosts: []string{"localhost:6380"}, db: 2},
		"redis://u:p%40%2Fss@h:1/":    {hosts: []string{"h:1"}, username: "u", password: "p@/ss"},
		"redis://:secret@h:1":         {hosts: []string{"h:1"}, password: "secret"},
		"rediss://h:1":                {hosts: []string{"h:1"}, tls: true},
		"redis://[::1]:6380":          {hosts: []string{"[::1]:6380"}},
		"redis://[fe80::1]":           {hosts: []string{"[fe80::1]:6379"}},
		"redis://h1:1,h2:2,h3":        {hosts: []string{"h1:1", "h2:2", "h3:6379"}, topology: topologyCluster},
		"redis://h1:1/?cluster=true":  {hosts: []string{"h1:1"}, topology: topologyCluster},
		"redis://h1:1/0?cluster=true": {hosts: []string{"h1:1"}, topology: topologyCluster},
		"rediss://u:p@h1:1,h2:2": {hosts: []string{"h1:1", "h2:2"}, topology: topologyCluster, tls: true,
			username: "u", password: "p"},
		"redis+sentinel://h1:1,h2/mymaster": {hosts: []string{"h1:1", "h2:26379"}, topology: topologySentinel,
			master: "mymaster"},
		"rediss+sentinel://u:p@h1:1/mymaster/3": {hosts: []string{"h1:1"}, topology: topologySentinel,
			master: "mymaster", db: 3, tls: true, username: "u", password: "p"},
		"redis+sentinel://h1:1/mymaster?cluster=0": {hosts: []string{"h1:1"}, topology: topologySentinel,
			master: "mymaster"},
		"redis://user@h:1": {hosts: []string{"h:1"}, username: "user"},
		"redis://u:colons:in:password@h:1": {hosts: []string{"h:1"}, username: "u",
			password: "colons:in:password"},
		"redis://u:at@sign@h:1":                      {hosts: []string{"h:1"}, username: "u", password: "at@sign"},
		"redis://h:1?cluster=false":                  {hosts: []string{"h:1"}},
		"redis://redis-0.redis.svc.cluster.local:77": {hosts: []string{"redis-0.redis.svc.cluster.local:77"}},
	} {
		got, err := parseURL(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
		} else if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", raw, got, want)
		}
	}
}

func TestParseURLErrors(t *testing.T) {
	for raw, want := range map[string]string{
		"":                                      "no scheme",
		"localhost:6379":                        "no scheme",
		"http://s3cret@h":                       "scheme must be",
		"redis://":                              "address 1: the host is missing",
		"redis://:s3cret@":                      "address 1: the host is missing",
		"redis://:s3cret@:6379":                 "address 1: the host is missing",
		"redis://:s3cret@h:port":                "address 1: the port must be",
		"redis://:s3cret@h:70000":               "address 1: the port must be",
		"redis://:s3cret@h1:1,:2":               "address 2: the host is missing",
		"redis://:s3cret@h1:1,h2:1:1":           "address 2: not of the form",
		"redis://:s3cret@h:1/x":                 "database must be a number",
		"redis://:s3cret@h:1/-1":                "database must be a number",
		"redis://:s3cret@h1:1,h2:2/1":           "only database 0",
		"redis://:s3cret@h1:1/1?cluster=true":   "only database 0",
		"redis://:s3cret@h:1?cluster=maybe":     "cluster must be true or false",
		"redis://:s3cret@a:1,b:2?cluster=no":    "cluster must be true or false",
		"redis://:s3cret@a:1,b:2?cluster=0":     "contradicts",
		"redis://:s3cret@h:1?db=1":              "only parameter is cluster",
		"redis://:s3cret@h:1?%zz":               "malformed",
		"redis://:s3%cret@h:1":                  "password is not properly",
		"redis://s3%cret@h:1":                   "user name is not properly",
		"redis://:s3/cret@h:1":                  "%2F",
		"redis://:pa#s3cret@h:1":                "'#'",
		"redis://:pa?s3cret@h:1":                "%3F",
		"redis+sentinel://:s3cret@h:1":          "name of the master is missing",
		"redis+sentinel://:s3cret@h:1/m/x":      "database must be a number",
		"redis+sentinel://s3cret@h/m?cluster=1": "cannot be combined",
	} {
		_, err := parseURL(raw)
		if err == nil {
			t.Errorf("%s: accepted", raw)
			continue
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
		for _, secret := range []string{"s3cret", "s3", "cret"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: the error gives away the password: %v", raw, err)
			}
		}
	}
}
