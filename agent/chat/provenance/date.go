package provenance

import (
	"strconv"
	"strings"
)

// date is a calendar day. Year 0: the text has no year.
type date struct{ year, month, day int }

func (d date) valid() bool {
	return d.month >= 1 && d.month <= 12 && d.day >= 1 && d.day <= 31 &&
		(d.year == 0 || d.year >= 1900 && d.year < 2200)
}

// monthNames are the names of the months in English, German, French and Spanish, with their abbreviations.
var monthNames = [12]string{
	"january jan januar janvier enero ene", "february feb februar février fév febrero",
	"march mar märz mär mars marzo", "april apr avril avr abril abr", "may mai mayo", "june jun juni juin junio",
	"july jul juli juillet julio", "august aug août agosto", "september sep sept septembre septiembre",
	"october oct oktober okt octobre octubre", "november nov novembre noviembre",
	"december dec dezember dez décembre déc diciembre dic",
}

// monthsByHash returns the numbers of the months, by the hash of their name as a token.
func monthsByHash() map[uint64]int {
	months := make(map[uint64]int)
	for i, names := range monthNames {
		tokens, _ := tokensOf(names, 12)
		for _, t := range tokens {
			months[t.hash] = i + 1
		}
	}
	return months
}

// dayOf parses the number of a day, such as 3, 03 and 3rd.
func dayOf(w string) int {
	for _, end := range []string{"st", "nd", "rd", "th"} {
		if s, ok := strings.CutSuffix(w, end); ok {
			w = s
			break
		}
	}
	return digits(w, 1, 2)
}

func yearOf(w string) int {
	if n := digits(w, 4, 4); n >= 1900 && n < 2200 {
		return n
	}
	return 0
}

// digits parses a number of least to most digits. It returns 0 if the text is no such number.
func digits(w string, least, most int) int {
	if len(w) < least || len(w) > most {
		return 0
	}
	n, err := strconv.ParseUint(w, 10, 32)
	if err != nil {
		return 0
	}
	return int(n)
}

// dates calls visit with every date in folded text. tokens are the tokens of the text.
func (r *reader) dates(s string, tokens []token, visit func(date)) {
	for i, t := range tokens {
		if t.digits || s[t.start] >= '0' && s[t.start] <= '9' {
			numericDate(s, tokens[i:], visit)
		} else if t.end-t.start >= 3 && t.end-t.start <= 12 {
			if month := r.months[t.hash]; month > 0 {
				namedDates(s, tokens, i, month, visit)
			}
		}
	}
}

// numericDate finds a date that begins with the first word: 2024-05-19, 19.05.2024 and 05/19/2024.
func numericDate(s string, tokens []token, visit func(date)) {
	if len(tokens) < 3 || !tokens[1].joined || !tokens[2].joined {
		return
	}
	a, b, c := tokens[0].text(s), tokens[1].text(s), tokens[2].text(s)
	if t := strings.IndexByte(c, 't'); t > 0 { // 2024-05-19T12:00
		c = c[:t]
	}
	emit := func(year, month, day int) {
		if d := (date{year, month, day}); year > 0 && d.valid() {
			visit(d)
		}
	}
	emit(yearOf(a), digits(b, 1, 2), digits(c, 1, 2))
	emit(yearOf(c), digits(b, 1, 2), digits(a, 1, 2))
	emit(yearOf(c), digits(a, 1, 2), digits(b, 1, 2))
}

// namedDates finds the dates around the name of a month: "May 1st, 2024", "the 1st of May", "from the 1st to the 5th of
// May", "May 1st to 5th".
func namedDates(s string, tokens []token, i, month int, visit func(date)) {
	at := func(n int) string {
		if n < 0 || n >= len(tokens) {
			return ""
		}
		return tokens[n].text(s)
	}
	emit := func(day, year int) {
		if v := (date{year, month, day}); v.valid() {
			visit(v)
		}
	}
	fill := func(n, step int) int { // skips words without meaning
		for range 2 {
			switch at(n) {
			case "the", "of", "de", "den", "and", "to", "until", "till", "through", "bis", "und", "y", "et", "au", "al":
				n += step
			}
		}
		return n
	}
	if right := fill(i+1, 1); dayOf(at(right)) > 0 {
		second := fill(right+1, 1)
		year := yearOf(at(right + 1))
		if two := dayOf(at(second)); two > 0 {
			if year == 0 {
				year = yearOf(at(second + 1))
			}
			emit(two, year)
		}
		emit(dayOf(at(right)), year)
	}
	if left := fill(i-1, -1); dayOf(at(left)) > 0 {
		year := yearOf(at(i + 1))
		emit(dayOf(at(left)), year)
		if first := fill(left-1, -1); dayOf(at(first)) > 0 {
			emit(dayOf(at(first)), year)
		}
	}
}
