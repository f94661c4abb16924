"""Small tokenizers of every kind that is read, and what Hugging Face's `tokenizers` makes of texts by them.

    record.py            writes NAME.json, chat/NAME/ and texts.txt beside itself; run by hand

Trained on the text below, which is our own, with tokenizers 0.23. texts.txt has a line for each tokenizer and
text: NAME, the text as JSON, and its ids with and without the template; and rows of messages, by transformers.
"""
import base64
import json
import os
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))

CORPUS = """The tide was out when we came down to the harbour, and the boats lay on their sides in the mud.
An old man was mending a net. He didn't look up; he said that the water would be back by four o'clock.
"It's always back," he told us, "and it'll take what you leave." We left nothing. In 1987 the sea took 12 sheds.
Zwölf Boote liegen schräg im Schlick, und über dem Dach kreisen Möwen. L'été, le café ouvre à 7 h 30.
   Four    spaces, a tab\tand a line end.\r\nNext line: 3.14159, 2,718 and 1e-9; x += y * (z - 1) // 2
import os\n\ndef main(argv):\n    for word in argv[1:]:\n        print(word.upper(), end=' ')\n
水位は四時に戻ると老人は言った。 Вода вернётся к четырём. नमस्ते दुनिया
""" * 3

TEXTS = [
    "The tide was out.", "  leading and trailing  ", "don't we'll I'd THEY'RE", "", " ", "a", "1234567 and 3.14",
    "line one\nline two\r\n\r\n\tthree", "Möwen über dem Dach; L'été à 7 h", "e\u0301te\u0301 and \u00e9t\u00e9",
    "水位は四時に戻る", "नमस्ते", "emoji \U0001F600 and \U0001F469\u200D\U0001F4BB here", "x+=y*(z-1)//2;   print(x)",
    "<s>not a prompt</s>", "tail <|im_end|> of it", "[MASK]ed word [SEP]", "naïve ﬁne Ⅷ Å \u212B", "tab\u00a0nbsp\u3000wide",
    "supercalifragilisticexpialidocious" * 4, "\u0130stanbul ΣΑΣ", "a\u0000b\ufffdc\u0007d",
    "the tide is``back'' at ｅ\u0301 o'clock…", "\u30c0e\u0301e\u0301 \u0e01\u0e33\u0e01 \u05d0\u05d1 x",
]

MESSAGES = [
    [{"role": "user", "content": "When is the tide back?"}, {"role": "assistant", "content": "By four o'clock."}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Boats?"},
     {"role": "assistant", "content": "In the mud."}, {"role": "user", "content": "And the net?"},
     {"role": "assistant", "content": "The old man mends it."}],
]

CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}"
          "{% endfor %}")
LLAMA3 = ("{{ '<|begin_of_text|>' }}{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + "
          "'<|end_header_id|>\\n\\n' + m['content'] | trim + '<|eot_id|>' }}{% endfor %}")

MESSAGES += [[{"role": "user", "content": "  Two words.\n\n"}, {"role": "assistant", "content": "One; two.  "},
              {"role": "user", "content": "Müde?\nOr not"}, {"role": "assistant", "content": "Water is back, the old man says."}]]

# Templates that write what those of the models do, in words of our own but for what ebb knows them by.
ALTERNATE = ("{% if message.role != ('assistant' if loop.index0 % 2 else 'user') %}"
             "{{ raise_exception('roles do not alternate') }}{% endif %}")
TURN = ("<start_of_turn>{{ 'model' if message.role == 'assistant' else 'user' }}\n%s{{ message.content | trim }}"
        "<end_of_turn>\n{% endfor %}")
GEMMA = "{{ bos_token }}{% for message in messages %}" + ALTERNATE + TURN.replace("%s", "")
GEMMA3 = ("{{ bos_token }}{% set first_user_prefix = messages[0].content + '\n\n' if messages[0].role == 'system' else '' %}"
          "{% for message in messages if message.role != 'system' %}" + ALTERNATE +
          TURN.replace("%s", "{% if loop.first %}{{ first_user_prefix }}{% endif %}"))
PHI3 = ("{% for message in messages %}{% if message.role == 'user' %}<|user|>\n{% elif message.role == 'system' %}<|system|>\n"
        "{% else %}<|assistant|>\n{% endif %}{{ message.content }}<|end|>\n{% endfor %}{{ eos_token }}")
MISTRAL1 = ("{{ bos_token }}{% for message in messages %}" + ALTERNATE + "{{ '[INST] ' + message['content'] + ' [/INST]' "
            "if message.role == 'user' else message.content + eos_token }}{% endfor %}")
MISTRAL3 = ("{{ bos_token }}{% for message in messages %}" + ALTERNATE + "{% if message.role == 'user' %}{{ \"[INST] \" + "
            "message[\"content\"] + \"[/INST]\" }}{% else %} {{ message.content | trim }}{{ eos_token }}{% endif %}{% endfor %}")
QWEN2 = ("{% for message in messages %}{% if loop.first and message.role != 'system' %}{{ '<|im_start|>system\n"
         "You\\'re a helpful assistant.<|im_end|>\n' }}{% endif %}<|im_start|>{{ message.role }}\n{{ message.content }}"
         "<|im_end|>\n{% endfor %}")

QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
        r"\s+(?!\S)|\s+")
LLAMA = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")


def byte_level(special, vocabulary=420, **kw):
    t = Tokenizer(models.BPE(**kw))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    train(t, trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=special,
                                 initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def train(t, trainer):
    t.train_from_iterator(CORPUS.splitlines(keepends=True), trainer)


def gpt2():
    t = byte_level(["<|endoftext|>"])
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    return t


def qwen2():
    t = byte_level([])
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    return t


def llama3():
    t = byte_level([], ignore_merges=True)
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.add_special_tokens(["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"])
    begin = t.token_to_id("<|begin_of_text|>")
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B:1",
                                      special_tokens=[("<|begin_of_text|>", begin)])])
    return t


def fallback_vocabulary(t):
    """A trained vocabulary with the 256 byte tokens of SentencePiece in it."""
    j = json.loads(t.to_str())
    old = j["model"]["vocab"]
    names = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)]
    names += [w for w in sorted(old, key=old.get) if w not in names]
    j["model"]["vocab"] = {w: i for i, w in enumerate(names)}
    j["model"].update(byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    j["added_tokens"] = [dict(id=i, content=w, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
                         for i, w in enumerate(names[:3])]
    return Tokenizer.from_str(json.dumps(j))


def llama2():
    t = Tokenizer(models.BPE(unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    train(t, trainers.BpeTrainer(vocab_size=330, special_tokens=["<unk>", "<s>", "</s>"], limit_alphabet=70))
    t = fallback_vocabulary(t)
    t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    t.pre_tokenizer = None
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B:1", special_tokens=[("<s>", 1)])
    return t


def mistral():
    t = Tokenizer.from_str(llama2().to_str())
    t.normalizer = None
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    return t


def bert(lower):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=lower)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", AddedToken("[MASK]", lstrip=True, special=True)]
    train(t, trainers.WordPieceTrainer(vocab_size=300, special_tokens=special, limit_alphabet=90))
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                                     special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return t


def clip():
    t = Tokenizer(models.BPE(unk_token="<|endoftext|>", end_of_word_suffix="</w>"))
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True),
        pre_tokenizers.Digits(individual_digits=True)])
    train(t, trainers.BpeTrainer(vocab_size=260, special_tokens=["<|startoftext|>", "<|endoftext|>"], end_of_word_suffix="</w>"))
    t.post_processor = processors.RobertaProcessing(("<|endoftext|>", 1), ("<|startoftext|>", 0), trim_offsets=False,
                                                    add_prefix_space=False)
    return t


def words():
    t = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_previous")])
    train(t, trainers.WordLevelTrainer(vocab_size=90, special_tokens=["[UNK]"]))
    return t


def charsmap(rules):
    """SentencePiece's compiled form of rules {text: replacement}, in base64."""
    with tempfile.TemporaryDirectory() as tmp:
        with open(f"{tmp}/rules.tsv", "w") as f:
            for a, b in sorted(rules.items()):
                f.write(" ".join("%X" % ord(c) for c in a) + "\t" + " ".join("%X" % ord(c) for c in b) + "\n")
        with open(f"{tmp}/text", "w") as f:
            f.write(CORPUS)
        sentencepiece.SentencePieceTrainer.train(input=f"{tmp}/text", model_prefix=f"{tmp}/m", vocab_size=150,
                                                 normalization_rule_tsv=f"{tmp}/rules.tsv", minloglevel=2)
        model = sentencepiece_model_pb2.ModelProto()
        with open(f"{tmp}/m.model", "rb") as f:
            model.ParseFromString(f.read())
        return base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode()


RULES = {"\ufb01": "fi", "\u2167": "VIII", "\u212b": "\xc5", "e\u0301": "\xe9", "\xa0": " ", "\u3000": " ", "\t": " ",
         "\n": " ", "\r": "", "\x07": "", "\u30c0": "\u30bf\u3099", "\uff45": "e", "\u2026": "..."}


def unigram(special, unknown, fallback=False):
    t = Tokenizer(models.Unigram())
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    train(t, trainers.UnigramTrainer(vocab_size=260, special_tokens=special, unk_token=unknown, show_progress=False))
    j = json.loads(t.to_str())
    if fallback:
        j["model"]["vocab"] += [["<0x%02X>" % b, -20.0] for b in range(256)]
        j["model"]["byte_fallback"] = True
    return j


def precompiled(j, first=(), last=()):
    steps = [*first, {"type": "Precompiled", "precompiled_charsmap": charsmap(RULES)}, *last]
    j["normalizer"] = {"type": "Sequence", "normalizers": steps}
    return Tokenizer.from_str(json.dumps(j))


def t5():
    t = precompiled(unigram(["<pad>", "</s>", "<unk>"], "<unk>"))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    return t


def albert():
    quotes = [dict(type="Replace", pattern=dict(String=a), content='"') for a in ("``", "''")]
    folded = [dict(type="NFKD"), dict(type="StripAccents"), dict(type="Lowercase")]
    blanks = dict(type="Replace", pattern=dict(Regex=" {2,}"), content=" ")
    t = precompiled(unigram(["<pad>", "<unk>", "[CLS]", "[SEP]"], "<unk>"), quotes + folded, [blanks])
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]",
                                                     special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return t


def unigram_bytes():
    """Whole texts, whose characters may become bytes."""
    j = unigram(["<unk>", "<s>", "</s>"], "<unk>", fallback=True)
    t = Tokenizer.from_str(json.dumps(j))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    return t


def with_tokens(t, tokens):
    t.add_special_tokens(tokens)
    return t


def gemma():
    t = Tokenizer.from_str(llama2().to_str())
    t.normalizer = normalizers.Replace(" ", "\u2581")
    return with_tokens(t, ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"])


def phi3():
    names = ["<|endoftext|>", "<|assistant|>", "<|system|>", "<|end|>", "<|user|>"]
    return with_tokens(llama2(), [AddedToken(w, rstrip=True, special=True, normalized=False) for w in names])


# name: tokenizer, begin, end, template
CHATS = {
    "qwen2": lambda: (qwen2(), None, "<|endoftext|>", QWEN2),
    "gemma": lambda: (gemma(), "<bos>", "<eos>", GEMMA),
    "gemma3": lambda: (gemma(), "<bos>", "<eos>", GEMMA3),
    "phi3": lambda: (phi3(), "<s>", "<|endoftext|>", PHI3),
    "mistral": lambda: (with_tokens(mistral(), ["[INST]", "[/INST]"]), "<s>", "</s>", MISTRAL3),
    "mistral1": lambda: (mistral(), "<s>", "</s>", MISTRAL1),
}


def record_chat(name, out):
    t, begin, end, template = CHATS[name]()
    folder = os.path.join(HERE, "chat", name)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(json.loads(t.to_str(pretty=False)), f, ensure_ascii=False, separators=(",", ":"))
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump({"bos_token": begin, "eos_token": end, "chat_template": template}, f)
        f.write("\n")
    fast = PreTrainedTokenizerFast(tokenizer_object=t, chat_template=template, bos_token=begin, eos_token=end)
    for messages in MESSAGES:
        try:
            text = fast.apply_chat_template(messages, tokenize=False)
        except Exception as error: # the template has no system message
            assert "alternate" in str(error)
            continue
        out.write(json.dumps(["chat/" + name + "/tokenizer", messages, t.encode(text, add_special_tokens=False).ids, []]) + "\n")


def main():
    made = {"gpt2": gpt2(), "qwen2": qwen2(), "llama3": llama3(), "llama2": llama2(), "mistral": mistral(),
            "bert": bert(True), "bert_cased": bert(False), "clip": clip(), "words": words(), "t5": t5(), "albert": albert(),
            "unigram_bytes": unigram_bytes()}
    chats = {"qwen2": CHATML, "llama3": LLAMA3}
    with open(os.path.join(HERE, "texts.txt"), "w", encoding="utf-8") as out:
        for name, t in made.items():
            with open(os.path.join(HERE, name + ".json"), "w", encoding="utf-8") as f:
                json.dump(json.loads(t.to_str(pretty=False)), f, ensure_ascii=False, separators=(",", ":"))
            t = Tokenizer.from_file(os.path.join(HERE, name + ".json"))
            for text in TEXTS:
                plain, whole = t.encode(text, add_special_tokens=False).ids, t.encode(text).ids
                out.write(json.dumps([name, text, plain, whole]) + "\n")
            for messages in MESSAGES if name in chats else []:
                fast = PreTrainedTokenizerFast(tokenizer_object=t, chat_template=chats[name])
                text = fast.apply_chat_template(messages, tokenize=False)
                out.write(json.dumps([name, messages, t.encode(text, add_special_tokens=False).ids, []]) + "\n")
        for name in CHATS:
            record_chat(name, out)


main()
