package routing

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// lastMoment answers a call when it hears that the call is cancelled.
type lastMoment struct {
	deafConn
	session *LocalSession
}

func (c *lastMoment) Cancel(callID, _ string) {
	c.session.Complete(callID, registry.Result{Success: true, Output: "done"}, func(bool) {})
}

// Whoever cancels a call learns how it ended as soon as its caller does, also when the device was faster.
func TestCancelTellsHowTheCallEnded(t *testing.T) {
	for name, tt := range map[string]struct {
		answers bool
		want    registry.State
	}{"cancelled": {false, registry.StateCancelled}, "answered just before": {true, registry.StateSucceeded}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pod := startPod(t, memory.New(memory.Options{}), "a")
				conn := &lastMoment{}
				var socket Conn = deafConn{}
				if tt.answers {
					socket = conn
				}
				l := connect(t, pod, socket, nil)
				conn.session = l
				ended := begin(t, pod, l.Session(), "c1", time.Minute)
				synctest.Wait()
				asked := time.Now()
				rec, err := pod.Calls.Cancel(t.Context(), "t", "c1")
				if err != nil || rec.State != tt.want {
					t.Errorf("cancelled: %+v, %v", rec, err)
				}
				if took := time.Since(asked); took >= recorderPause {
					t.Errorf("it took %v", took)
				}
				<-ended
			})
		})
	}
}
