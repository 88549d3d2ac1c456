package bus

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/redisstore/redistest"
)

// BenchmarkPublishOnCluster compares two ways to publish on a Cluster of three masters with a replica each: PUBLISH,
// which goes to every member, and SPUBLISH, which stays in a shard and is ours. Eight pods listen. It counts what the
// six members do for a message: messages to each other, processor time by commandstats and as the operating system sees
// it.
func BenchmarkPublishOnCluster(b *testing.B) {
	const pods, pipelined = 8, 8
	payload := strings.Repeat("x", 200)
	for _, way := range []string{"PUBLISH", "SPUBLISH"} {
		b.Run(way, func(b *testing.B) {
			cluster := redistest.ReplicatedCluster(b)
			conn := dial(b, cluster.URL)
			members := append(cluster.Masters, cluster.Replicas...)
			for i := range pods {
				var ps *redis.PubSub
				if channel := podChannel(fmt.Sprint(i)); way == "PUBLISH" {
					ps = conn.Client().Subscribe(b.Context(), channel)
				} else {
					ps = conn.Client().SSubscribe(b.Context(), channel)
				}
				if _, err := ps.Receive(b.Context()); err != nil {
					b.Fatal(err)
				}
				ch := ps.Channel(redis.WithChannelSize(1 << 16))
				go func() {
					for range ch {
					}
				}()
				b.Cleanup(func() { _ = ps.Close() })
			}
			before := usageOf(b, members)
			b.ResetTimer()
			for n := 0; n < b.N; n += pipelined {
				pipe := conn.Pipeline()
				for i := range pipelined {
					channel := podChannel(fmt.Sprint((n/pipelined + i) % pods))
					pipe.Do(way, channel, payload)
				}
				if err := pipe.Exec(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			after := usageOf(b, members)
			for i, unit := range []string{"bus-messages/op", "redis-µs/op", "cpu-µs/op"} {
				b.ReportMetric((after[i]-before[i])/float64(b.N), unit)
			}
		})
	}
}

var (
	busMessages = regexp.MustCompile(`cluster_stats_messages_publish\w*_sent:(\d+)`)
	commandTime = regexp.MustCompile(`cmdstat_(?:publish|spublish):calls=\d+,usec=(\d+)`)
	processTime = regexp.MustCompile(`used_cpu_(?:sys|user):([\d.]+)`)
)

// usageOf sums up messages between members, µs of commands that publish, and µs of processor time, over all members.
func usageOf(b *testing.B, members []*redistest.Server) (usage [3]float64) {
	for _, s := range members {
		for i, source := range []struct {
			command string
			number  *regexp.Regexp
			scale   float64
		}{{"cluster info", busMessages, 1}, {"info commandstats", commandTime, 1}, {"info cpu", processTime, 1e6}} {
			out, err := s.Command(strings.Fields(source.command)...)
			if err != nil {
				b.Fatal(err)
			}
			for _, m := range source.number.FindAllStringSubmatch(out, -1) {
				n, _ := strconv.ParseFloat(m[1], 64)
				usage[i] += n * source.scale
			}
		}
	}
	return usage
}
