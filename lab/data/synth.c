/* SPDX-License-Identifier: MIT
 *
 * Synthetic sentences, stories and scenes; the drawings are in data/synth_images.c.
 */
#include "data/synth.h"

#include "base/strings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) ((int64_t)(sizeof(array) / sizeof *(array)))

static lab_rng stream(uint64_t seed, const char *name) {
  return lab_rng_make(seed, lab_hash(LAB_HASH_START, name, strlen(name)));
}

/* ---- Pairs ---- */
/* The other language: determiner, noun, then its adjectives with the noun's ending; the place before the object; the
 * verb at the end of the clause, with the subject's number. Nouns have one of two classes, which a learner must
 * remember. */

typedef struct entry {
  const char *english, *other;
} entry;

static const entry nouns[] = {/* class 0: even places, class 1: odd places */
                              {"dog", "kelu"},    {"cat", "miro"},    {"house", "tavu"}, {"tree", "silo"},
                              {"river", "naru"},  {"bridge", "pemo"}, {"child", "lotu"}, {"teacher", "gano"},
                              {"letter", "sivu"}, {"garden", "rolo"}, {"horse", "beku"}, {"ship", "dano"},
                              {"window", "felu"}, {"table", "karo"},  {"book", "zimu"},  {"stone", "hupo"},
                              {"bird", "welu"},   {"road", "tomo"},   {"king", "aradu"}, {"farmer", "oleno"},
                              {"song", "misu"},   {"lamp", "deko"},   {"field", "yoru"}, {"wheel", "paro"}};
static const entry adjectives[] = {{"old", "ves"},   {"small", "tik"},  {"green", "lum"},  {"quiet", "ash"},
                                   {"heavy", "dor"}, {"bright", "fin"}, {"cold", "krin"},  {"young", "nov"},
                                   {"long", "alt"},  {"kind", "mel"},   {"strange", "ub"}, {"red", "ros"}};
static const entry verbs[] = {{"see", "vim"},    {"find", "trov"}, {"carry", "port"}, {"know", "sab"},
                              {"paint", "kol"},  {"build", "kon"}, {"follow", "sek"}, {"help", "jut"},
                              {"watch", "gard"}, {"keep", "ten"},  {"draw", "graf"},  {"need", "bes"}};
static const entry places[] = {{"near", "apu"},    {"behind", "posta"}, {"under", "suba"},
                               {"above", "supra"}, {"beside", "lata"},  {"before", "anta"}};
static const entry adverbs[] = {{"today", "hodi"}, {"often", "ofta"},   {"slowly", "lenta"},
                                {"never", "neva"}, {"always", "sempa"}, {"again", "denova"}};

enum { LINE = 256 };

typedef struct sentence {
  char english[LINE], other[LINE];
} sentence;

static void append(char *text, const char *word, const char *ending) {
  size_t used = strlen(text);
  const char *parts[] = {used ? " " : "", word, ending};
  for (int i = 0; i < 3; i++)
    for (const char *s = parts[i]; *s && used + 1 < LINE; s++)
      text[used++] = *s;
  text[used] = 0;
}

/* A noun phrase; returns whether it is plural. */
static int noun_phrase(sentence *out, lab_rng *rng) {
  int64_t noun = lab_rng_below(rng, COUNT(nouns));
  int class = (int)(noun % 2), plural = lab_rng_below(rng, 3) == 0, definite = plural || lab_rng_below(rng, 2) == 0;
  static const char *const endings[2][2] = {{"a", "as"}, {"o", "on"}};
  const char *ending = endings[class][plural];
  append(out->other, definite ? class ? "lo" : "la" : "un", definite && plural ? "i" : "");
  append(out->other, nouns[noun].other, plural ? "mi" : "");
  const entry *chosen[2];
  int64_t count = lab_rng_below(rng, 3);
  for (int64_t i = 0; i < count; i++) {
    chosen[i] = &adjectives[lab_rng_below(rng, COUNT(adjectives))];
    append(out->other, chosen[i]->other, ending);
  }
  int vowel = count > 0 && chosen[0]->english[0] == 'o';
  append(out->english, definite ? "the" : "a", !definite && vowel ? "n" : "");
  for (int64_t i = 0; i < count; i++)
    append(out->english, chosen[i]->english, "");
  const char *english_plural = strcmp(nouns[noun].english, "child") == 0 ? "ren" : "s";
  append(out->english, nouns[noun].english, plural ? english_plural : "");
  return plural;
}

static sentence make_sentence(lab_rng *rng) {
  sentence subject = {{0}, {0}}, object = subject, place = subject, out = subject;
  int plural = noun_phrase(&subject, rng);
  noun_phrase(&object, rng);
  const entry *verb = &verbs[lab_rng_below(rng, COUNT(verbs))];
  const entry *adverb = lab_rng_below(rng, 3) == 0 ? &adverbs[lab_rng_below(rng, COUNT(adverbs))] : NULL;
  if (lab_rng_below(rng, 3) == 0) {
    const entry *where = &places[lab_rng_below(rng, COUNT(places))];
    append(place.english, where->english, "");
    append(place.other, where->other, "");
    noun_phrase(&place, rng);
  }
  append(out.english, subject.english, "");
  int carries = strcmp(verb->english, "carry") == 0;
  append(out.english, carries && !plural ? "carrie" : verb->english,
         plural                           ? ""
         : strcmp(verb->english, "watch") ? "s"
                                          : "es");
  append(out.english, object.english, "");
  if (place.english[0]) append(out.english, place.english, "");
  if (adverb) append(out.english, adverb->english, "");
  append(out.english, ".", "");

  if (adverb) append(out.other, adverb->other, "");
  append(out.other, subject.other, "");
  if (place.other[0]) append(out.other, place.other, "");
  append(out.other, object.other, "");
  append(out.other, verb->other, plural ? "en" : "it");
  append(out.other, ".", "");
  return out;
}

void lab_synth_pairs(lab_pairs *pairs, int64_t count, uint64_t seed) {
  lab_rng rng = stream(seed, "synthetic pairs");
  lab_strings seen = {0};
  for (int64_t made = 0; made < count;) {
    sentence s = make_sentence(&rng);
    int64_t known = seen.count;
    if (lab_strings_add(&seen, s.english, strlen(s.english)) < known) continue;
    lab_pairs_add(pairs, s.english, s.other);
    made++;
  }
  lab_strings_free(&seen);
  pairs->synthetic = 1;
  snprintf(pairs->origin, sizeof pairs->origin, "synthetic sentence pairs (seed %llu)", (unsigned long long)seed);
}

/* ---- Stories ---- */
/* A story sends some people to different places, each with a thing, and then speaks of them again in other words, so
 * that who is meant can be told from what was said before. */

static const char *const people[] = {"Anna",  "Boris", "Clara", "David", "Elena",
                                     "Felix", "Greta", "Henry", "Irene", "Jonas"};
static const char *const towns[] = {"Garden", "Harbour", "Tower",  "Market", "Mill",
                                    "Chapel", "Forest",  "School", "Station"};
static const char *const things[] = {"lamp",   "basket", "violin", "map",   "hammer",
                                     "candle", "mirror", "ladder", "kettle"};

/* The first `count` of a random order of 0 .. n-1. */
static void choose(int64_t *out, int64_t count, int64_t n, lab_rng *rng) {
  int64_t all[16];
  for (int64_t i = 0; i < n; i++)
    all[i] = i;
  for (int64_t i = 0; i < count; i++) {
    int64_t j = i + lab_rng_below(rng, n - i), swap = all[i];
    all[i] = all[j];
    all[j] = swap;
    out[i] = all[i];
  }
}

static void add_line(lab_text *text, int64_t *capacity, const char *line) {
  int64_t length = (int64_t)strlen(line);
  text->bytes = lab_grow(text->bytes, capacity, text->size + length + 1, 1);
  memcpy(text->bytes + text->size, line, (size_t)length + 1);
  text->size += length;
}

static void add_story(lab_text *text, int64_t *capacity, lab_rng *rng) {
  enum { CAST = 3 };
  int64_t who[CAST], where[CAST], what[CAST];
  char line[160];
  choose(who, CAST, COUNT(people), rng);
  choose(where, CAST, COUNT(towns), rng);
  choose(what, CAST, COUNT(things), rng);
  for (int i = 0; i < CAST; i++) {
    snprintf(line, sizeof line, "So %s took the %s and went to the %s.\n", people[who[i]], things[what[i]],
             towns[where[i]]);
    add_line(text, capacity, line);
  }
  for (int i = 0; i < 2 * CAST; i++) {
    int64_t one = lab_rng_below(rng, CAST);
    const char *person = people[who[one]], *town = towns[where[one]], *thing = things[what[one]];
    switch (lab_rng_below(rng, 4)) {
    case 0:
      snprintf(line, sizeof line, "The %s was in the hands of %s.\n", thing, person);
      break;
    case 1:
      snprintf(line, sizeof line, "At the %s stood %s.\n", town, person);
      break;
    case 2:
      snprintf(line, sizeof line, "People saw a %s at the %s.\n", thing, town);
      break;
    default:
      snprintf(line, sizeof line, "The way of %s led to the %s.\n", person, town);
      break;
    }
    add_line(text, capacity, line);
  }
}

void lab_synth_text(lab_text *text, int64_t bytes, uint64_t seed) {
  lab_rng rng = stream(seed, "synthetic text");
  int64_t capacity = 0;
  *text = (lab_text){.synthetic = 1};
  snprintf(text->origin, sizeof text->origin, "synthetic stories (seed %llu)", (unsigned long long)seed);
  do
    add_story(text, &capacity, &rng);
  while (text->size < bytes);
}

int lab_synth_cloze(lab_cloze *cloze, const lab_cloze_options *options, lab_error *error) {
  lab_text text;
  /* A sentence has about 35 bytes, and not each one makes a question. */
  lab_synth_text(&text, 100 * (options->questions > 0 ? options->questions : 5000), options->seed);
  int status = lab_cloze_make(cloze, &text, options, error);
  lab_text_free(&text);
  return status;
}

/* ---- Scenes ---- */

static const char *const colours[] = {"red", "blue", "green", "yellow", "black", "white", "brown", "grey"};
static const char *const objects[] = {"ball", "box",    "cup",  "chair", "car", "tree",
                                      "dog",  "bottle", "book", "hat",   "key", "shoe"};
static const char *const relations[] = {"left of", "right of", "above", "below"};

enum { ATTRIBUTES = 8 + 12 + 4 + 8 + 12 };

static void scene_features(float *out, int dims, const int64_t *attributes, const double *directions, lab_rng *rng) {
  for (int d = 0; d < dims; d++) {
    double value = 0.3 * lab_rng_normal(rng);
    for (int a = 0; a < 5; a++)
      value += directions[attributes[a] * dims + d];
    out[d] = (float)value;
  }
}

void lab_synth_scenes(lab_scenes *scenes, int64_t count, int dims, uint64_t seed) {
  int64_t most = COUNT(colours) * COUNT(objects) * COUNT(relations) * COUNT(colours) * COUNT(objects);
  if (count > most / 2) count = most / 2; /* all captions are distinct */
  *scenes = (lab_scenes){.count = count, .dims = dims};
  scenes->features = lab_alloc((size_t)count * (size_t)dims, sizeof *scenes->features);
  scenes->captions = lab_alloc((size_t)count, sizeof *scenes->captions);
  snprintf(scenes->origin, sizeof scenes->origin, "synthetic scenes (seed %llu)", (unsigned long long)seed);
  lab_rng rng = stream(seed, "synthetic scenes");
  double *directions = lab_alloc((size_t)ATTRIBUTES * (size_t)dims, sizeof *directions);
  for (int64_t i = 0; i < ATTRIBUTES * (int64_t)dims; i++)
    directions[i] = lab_rng_normal(&rng);
  lab_strings seen = {0};
  for (int64_t made = 0; made < count;) {
    int64_t a[5] = {lab_rng_below(&rng, COUNT(colours)), lab_rng_below(&rng, COUNT(objects)),
                    lab_rng_below(&rng, COUNT(relations)), lab_rng_below(&rng, COUNT(colours)),
                    lab_rng_below(&rng, COUNT(objects))};
    char caption[128];
    snprintf(caption, sizeof caption, "a %s %s is %s a %s %s", colours[a[0]], objects[a[1]], relations[a[2]],
             colours[a[3]], objects[a[4]]);
    int64_t known = seen.count;
    if (lab_strings_add(&seen, caption, strlen(caption)) < known) continue;
    int64_t first_of[5] = {0, 8, 20, 24, 32};
    for (int i = 0; i < 5; i++)
      a[i] += first_of[i];
    scene_features(scenes->features + made * dims, dims, a, directions, &rng);
    scenes->captions[made++] = lab_copy(caption, strlen(caption));
  }
  lab_strings_free(&seen);
  free(directions);
}

void lab_scenes_free(lab_scenes *scenes) {
  for (int64_t i = 0; i < scenes->count; i++)
    free(scenes->captions[i]);
  free(scenes->captions);
  free(scenes->features);
  *scenes = (lab_scenes){0};
}
