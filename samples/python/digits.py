"""digits.py: the digits of samples/digits, trained from Python. Run it from the folder of the sources."""
import ebb
import numpy

digits = numpy.load("samples/digits/digits.npz")
model = ebb.open("samples/digits/cnn.onnx", batch=32)
model.rewrite(loss="cross-entropy", optimizer="adamw:lr=0.003", passes=["sign-mask", "dropout-seed"])
print(f"a step takes {model.plan().arena_bytes / 2**20:.2f} MiB")
trainer = ebb.Trainer(model.compile(), {"image": digits["image"], "target": digits["label"]}, batch=32, epochs=3,
                      tell=lambda t, event: event == "epoch" and print(f"epoch {t.facts().epoch}: "
                                                                       f"loss {t.facts().epoch_loss:.4f}"))
trainer.run()
trainer.program.store(trained := ebb.open("samples/digits/cnn.onnx"))
trained.save("trained.onnx")
