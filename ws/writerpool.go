package ws

import "sync"

// writerPool runs the goroutines that write to devices. There is none while there is nothing to write.
//
// A writer that gets to work while more connections wait starts another one before it begins, because its own device
// may be slow. If the device is not slow, the first writer has done all the work by the time the second one looks. So a
// burst to many devices costs only the goroutines it needs, and a stuck device holds up nobody else. There is never
// more than one writer beyond the number of connections.
type writerPool struct {
	server *Server // counts the goroutines

	mu          sync.Mutex
	first, last *conn // the connections that wait for a writer, each at most once, linked by conn.nextToWrite
	starting    bool  // a writer was started that does not run yet
}

// add lets a writer write what the connection has queued. It returns at once.
func (p *writerPool) add(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first == nil {
		p.first = c
	} else {
		p.last.nextToWrite = c
	}
	p.last = c
	p.startLocked()
}

// startLocked starts a writer if one is needed and none is starting.
func (p *writerPool) startLocked() {
	if p.first == nil || p.starting {
		return
	}
	p.starting = true
	// The waiting connection is still counted as a task: its teardown needs the lock of its outbox, which add's caller
	// holds.
	p.server.addTask()
	go p.writeWaiting()
}

// writeWaiting is one writer: it serves connections until none waits.
func (p *writerPool) writeWaiting() {
	defer p.server.taskDone()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starting = false
	for p.first != nil {
		c := p.first
		p.first, c.nextToWrite = c.nextToWrite, nil
		p.startLocked()
		p.mu.Unlock()
		c.writeQueued()
		p.mu.Lock()
	}
}
