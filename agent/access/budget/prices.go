package budget

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/bits"
	"sync/atomic"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/farhand/farhand/internal/reload"
)

// maxPrices bounds a file of prices, in bytes.
const maxPrices = 256 << 10

// Price is what a model costs: millionths of the unit of currency for a million tokens. So 3000000 is 3.00, also the
// millionths that one token costs.
type Price struct {
	Input  uint32 `yaml:"input"`
	Output uint32 `yaml:"output"`
}

// anyModel names the price of the models that have none.
const anyModel = "*"

const million = 1_000_000

// Cost returns what an answer costs in millionths, rounded up.
func (p Price) Cost(input, output int) int64 {
	inHigh, inLow := bits.Mul64(uint64(max(input, 0)), uint64(p.Input))
	outHigh, outLow := bits.Mul64(uint64(max(output, 0)), uint64(p.Output))
	low, carry := bits.Add64(inLow, outLow, 0)
	low, more := bits.Add64(low, million-1, 0)
	high := inHigh + outHigh + carry + more
	if high >= million { // more than any sum counts
		return 1 << 53
	}
	cost, _ := bits.Div64(high, low, million)
	return int64(min(cost, 1<<53))
}

// Prices has the prices of models. The zero value has none. It is safe for concurrent use.
type Prices struct {
	table atomic.Pointer[map[string]Price]
	file  *reload.File
}

// OpenPrices returns the prices of a file, and keeps them up to date with it until Close. Later, an invalid file leaves
// the prices unchanged and is logged once.
func OpenPrices(path string, interval time.Duration, log *slog.Logger) (*Prices, error) {
	p := new(Prices)
	apply := func(text []byte) error {
		table, err := ParsePrices(text)
		if err == nil {
			p.table.Store(&table)
		}
		return err
	}
	file, err := reload.Open(reload.Config{
		Path: path, What: "file of model prices", Max: maxPrices, Interval: interval, Apply: apply, Log: log,
	})
	if err != nil {
		return nil, err
	}
	p.file = file
	return p, nil
}

// ReadPrices checks a file of prices.
func ReadPrices(path string) error {
	text, err := reload.Read(path, maxPrices)
	if err == nil {
		_, err = ParsePrices(text)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// ParsePrices reads a file of prices, YAML or JSON.
func ParsePrices(text []byte) (map[string]Price, error) {
	if len(text) > maxPrices {
		return nil, fmt.Errorf("the file is longer than %d bytes", maxPrices)
	}
	var file struct {
		Version int              `yaml:"version"`
		Models  map[string]Price `yaml:"models"`
	}
	loader, err := yaml.NewLoader(bytes.NewReader(text), yaml.WithKnownFields(), yaml.WithUniqueKeys())
	if err == nil {
		err = loader.Load(&file)
	}
	if err != nil {
		return nil, err
	}
	if err := loader.Load(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("the file has more than one document")
	}
	if file.Version != 1 {
		return nil, fmt.Errorf("a file of model prices needs version: 1")
	}
	return file.Models, nil
}

// Of returns the price of a model, and whether it has one.
func (p *Prices) Of(model string) (Price, bool) {
	table := p.table.Load()
	if table == nil {
		return Price{}, false
	}
	price, ok := (*table)[model]
	if !ok {
		price, ok = (*table)[anyModel]
	}
	return price, ok
}

// Status returns the state of the file; zero without one.
func (p *Prices) Status() reload.Status {
	if p.file == nil {
		return reload.Status{}
	}
	return p.file.Status()
}

// Close stops reading the file.
func (p *Prices) Close() {
	if p.file != nil {
		p.file.Close()
	}
}
