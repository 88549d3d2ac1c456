package mcp

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"slices"

	"github.com/farhand/farhand/internal/strictjson"
)

// ttl is for how long a client may keep what it has listed, in milliseconds. It is short because devices come and go,
// and a client that does not listen learns of it no other way.
const ttl = "5000"

// private ends a result that a client may keep for itself.
const private = `,"ttlMs":` + ttl + `,"cacheScope":"private"`

// capabilities are what is offered. Nothing is pushed to clients of the revisions before 2026-07-28.
const (
	capabilitiesModern = `{"tools":{"listChanged":true},"resources":{"listChanged":true},` +
		`"extensions":{"` + extensionTasks + `":{}}}`
	capabilitiesLegacy = `{"tools":{},"resources":{}}`
)

// instructions tell a model what it is connected to.
func instructions(scope Scope) string {
	return "Farhand gives you tools of devices that are connected right now. " + scope.text() +
		" A name that ends in two underscores and a session's id runs on that session's device." +
		" Devices come and go: list the tools again when one is missing." +
		" Read the resource farhand://sessions to see who is connected."
}

// initialize begins a connection in the revisions before 2026-07-28. Nothing is kept of it: the name of the session
// only tells the ids of its requests from those of another client of the same identity, which counts from 0 too.
func (s *Server) initialize(_ context.Context, r *request) (result, error) {
	asked, ok := r.params.text("protocolVersion")
	if !ok {
		return result{}, invalidParams("The field \"protocolVersion\" must be a string.")
	}
	if asked >= revision2026 || !slices.Contains(revisions(), asked) {
		asked = revision2025
	}
	r.Out.NameSession(rand.Text())
	b := strictjson.AppendString([]byte(`"protocolVersion":`), asked)
	b = append(append(b, `,"capabilities":`+capabilitiesLegacy+`,"serverInfo":`...), s.info...)
	return result{members: strictjson.AppendString(append(b, `,"instructions":`...), instructions(r.Scope))}, nil
}

// ping answers that the gateway is there.
func (s *Server) ping(context.Context, *request) (result, error) { return result{}, nil }

// discover says what is served, in place of initialize.
func (s *Server) discover(_ context.Context, r *request) (result, error) {
	versions, _ := json.Marshal(revisions()) // cannot fail: strings
	b := append([]byte(`"supportedVersions":`), versions...)
	b = strictjson.AppendString(append(b, `,"capabilities":`+capabilitiesModern+`,"instructions":`...),
		instructions(r.Scope))
	return result{members: append(b, private...)}, nil
}
