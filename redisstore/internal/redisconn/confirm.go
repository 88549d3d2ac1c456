package redisconn

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/registry"
)

// confirmation is one caller of Confirm.
type confirmation struct {
	key string
	err error
}

// Confirm waits until as many replicas as Options.Replicas have everything that the master of a key had written when
// Confirm was called. It waits at most half of the timeout. The error does not say that the writes are lost: a replica
// may get them later. With no replicas it does nothing.
func (c *Conn) Confirm(ctx context.Context, key string) error {
	if c.replicas == 0 {
		return nil
	}
	own := &confirmation{key: key}
	c.confirms.Exec(ctx, own)
	return own.err
}

// newConfirms returns what sends the commands of Confirm. What several goroutines wait for at the same time is one
// command, as each waits for all writes. In a Cluster each key has its own master.
func (c *Conn) newConfirms() *Together[*confirmation] {
	return NewTogether(func(ctx context.Context, all []*confirmation) {
		cluster, ok := c.client.(*redis.ClusterClient)
		if !ok {
			failConfirmations(all, c.awaitReplicas(ctx, c.client, all[0].key))
			return
		}
		var waiting sync.WaitGroup
		for _, one := range all {
			waiting.Go(func() {
				master, err := cluster.MasterForKey(ctx, one.key)
				if err == nil {
					err = c.awaitReplicas(ctx, master, one.key)
				}
				one.err = Unavailable("wait for replicas", err)
			})
		}
		waiting.Wait()
	}, failConfirmations)
}

func failConfirmations(all []*confirmation, err error) {
	for _, one := range all {
		one.err = Unavailable("wait for replicas", err)
	}
}

// awaitReplicas waits for the replicas of one master. WAIT waits for what its connection knows of, so it comes after
// another command: that tells the connection how much the master has written.
func (c *Conn) awaitReplicas(ctx context.Context, master redis.Cmdable, key string) error {
	limit := c.addr.timeout / 2
	have := redis.NewIntCmd(ctx, "WAIT", c.replicas, limit.Milliseconds())
	_, err := master.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Exists(ctx, key)
		return pipe.Process(ctx, have)
	})
	if err == nil && have.Val() < int64(c.replicas) {
		err = registry.StoreUnavailable("wait for replicas",
			fmt.Errorf("%d of %d have confirmed within %v", have.Val(), c.replicas, limit))
	}
	return err
}
