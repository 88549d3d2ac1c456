package shell

import (
	"strings"
	"testing"
)

// TestProgramsThatRunOthers: programs that run others by their manuals, or in the list of GTFOBins, are not allowed by
// name alone. Usual programs are.
func TestProgramsThatRunOthers(t *testing.T) {
	for name := range strings.FieldsSeq(`bash yash elvish nu xonsh lftp pic psftp pidstat ginsh tdbtool tasksh vipw
		tmate ssh-keygen rpmquery gosu pytest just ipython3 sbcl swipl javac zig ncdu tig soffice crash nasm ts-node`) {
		if !runs(name) {
			t.Errorf("%s may be allowed by name alone", name)
		}
	}
	for name := range strings.FieldsSeq(`ls cat grep find sort wc cp mv mkdir date stat diff jq rg fd tree xxd`) {
		if runs(name) {
			t.Errorf("%s may not be allowed by name", name)
		}
	}
}
