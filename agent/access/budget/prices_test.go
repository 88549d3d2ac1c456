package budget_test

import (
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/access/budget"
	"github.com/farhand/farhand/internal/testkit"
)

func openPrices(t *testing.T, text string) *budget.Prices {
	t.Helper()
	path := filepath.Join(t.TempDir(), "prices.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := budget.OpenPrices(path, time.Hour, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Costs are exact: no fraction of a millionth is lost, and none is charged twice.
func TestCosts(t *testing.T) {
	for _, c := range []struct {
		price         budget.Price
		input, output int
		want          int64
	}{
		{budget.Price{Input: 3_000_000, Output: 15_000_000}, 1000, 100, 4500},
		{budget.Price{Input: 150_000}, 1, 0, 1},  // 0.15: rounded up
		{budget.Price{Input: 150_000}, 20, 0, 3}, // 3.0
		{budget.Price{Input: 150_000}, 21, 0, 4}, // 3.15
		{budget.Price{}, 1 << 40, 1 << 40, 0},
		{budget.Price{Input: 1, Output: 1}, -5, 0, 0},
		{budget.Price{Input: math.MaxUint32, Output: math.MaxUint32}, math.MaxInt, math.MaxInt, 1 << 53},
	} {
		if got := c.price.Cost(c.input, c.output); got != c.want {
			t.Errorf("%+v of %d and %d: %d, want %d", c.price, c.input, c.output, got, c.want)
		}
	}
}

func TestFilesOfPrices(t *testing.T) {
	p := openPrices(t, `{"version": 1, "models": {"small": {"input": 1, "output": 2}, "*": {"input": 5}}}`)
	defer p.Close()
	if price, ok := p.Of("small"); !ok || price != (budget.Price{Input: 1, Output: 2}) {
		t.Errorf("%+v, %v", price, ok)
	}
	if price, ok := p.Of("other"); !ok || price.Input != 5 {
		t.Errorf("%+v, %v", price, ok)
	}
	for _, wrong := range []string{
		"models: {}", "version: 2", "version: 1\nmodels: {a: {input: 0.15}}", "version: 1\nmodels: {a: {input: -1}}",
		"version: 1\nmodels: {a: {inputs: 1}}", "version: 1\nmodels: {a: {input: 1}, a: {input: 2}}", "[", "1",
		"version: 1\n---\nversion: 1",
	} {
		if _, err := budget.ParsePrices([]byte(wrong)); err == nil {
			t.Errorf("accepted: %s", wrong)
		}
	}
}

// A file that changes is in force soon; one that is wrong leaves the prices as they are.
func TestPricesAreReloaded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "prices.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write("version: 1\nmodels: {a: {input: 1}}\n")
	p, err := budget.OpenPrices(path, time.Millisecond, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	write("version: 1\nmodels: {a: {input: 2}}\n")
	testkit.Eventually(t, "the new price is in force", func() bool { price, _ := p.Of("a"); return price.Input == 2 })
	write("version: 1\nmodels: {a: {input: 1.5}}\n")
	testkit.Eventually(t, "the wrong file is refused", func() bool { return p.Status().Err != nil })
	if price, _ := p.Of("a"); price.Input != 2 {
		t.Errorf("%+v", price)
	}
	if _, err := budget.OpenPrices(path, time.Hour, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a wrong file is opened")
	}
}
