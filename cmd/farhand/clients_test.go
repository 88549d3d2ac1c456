package main

import (
	"net/http"
	"testing"
)

func TestClientCount(t *testing.T) {
	var n clientCount
	closed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	if !closed(n.none()) {
		t.Error("clients before any came")
	}
	for range 2 {
		n.note(nil, http.StateNew)
		n.note(nil, http.StateNew)
		n.note(nil, http.StateActive)
		first, second := n.none(), n.none()
		n.note(nil, http.StateClosed)
		if closed(first) || closed(second) {
			t.Fatal("a client is left")
		}
		n.note(nil, http.StateHijacked)
		if !closed(first) || !closed(second) || !closed(n.none()) {
			t.Fatal("the last client has gone unnoticed")
		}
	}
}
