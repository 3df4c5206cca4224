-- What is lost by asking the cost model about the ends of steps (fa2i_problem_asked, runtime/ops/steps.h): for
-- random problems on four SMs, of tests/bench/untuned.py's kinds, the model's time of the kernel chosen so over
-- that of its first choice.
--
--   build/tests/run_lua tests/bench/rounding.lua [PROBLEMS]
--
-- from the top of the source tree.
local fa2 = fa2 -- luacheck: ignore 113 (tests/bench/run_lua.c)
local generator = require("init")

local sms, dims = {75, 86, 89, 90}, {16, 32, 40, 64, 80, 96, 128, 256}
local problems = tonumber(arg[1]) or 1000
math.randomseed(20)

local function log_uniform(least, most)
   return math.floor(least * (most / least) ^ math.random() + 0.5)
end

-- Batch and lengths of a decode, of a chunk of a prompt, of a prefill.
local kinds = {
   function()
      return log_uniform(1, 96), math.random() < 0.8 and 1 or 2 ^ math.random(1, 3) | 0, log_uniform(256, 65536)
   end,
   function()
      local seq = log_uniform(16, 1024)
      return log_uniform(1, 4), seq, seq + log_uniform(256, 32768)
   end,
   function()
      local seq = log_uniform(64, 8192)
      return log_uniform(1, 16), seq, seq
   end,
}

local function random_problem(kind)
   local batch, seq_q, seq_k = kinds[kind]()
   local heads_kv = 2 ^ math.random(0, 5) | 0
   return fa2.problem({
      op = "forward", dtype = "fp16", batch = batch, heads_q = heads_kv * (2 ^ math.random(0, 3) | 0),
      heads_kv = heads_kv, seq_q = seq_q, seq_k = seq_k, head_dim = dims[math.random(#dims)],
      causal = kind == 2 and 1 or math.random(0, 1),
   })
end

local losses, sum = {}, 0
for i = 1, problems do
   local problem, card = random_problem(i % #kinds + 1), assert(generator.card(sms[math.random(#sms)]))
   card.generic = false -- Hopper's own families, too
   local best = assert(generator.candidates(problem, card))[1]
   local chosen = assert(generator.candidates(fa2.asked(problem, card.sm_count), card))[1]
   losses[i] = assert(generator.cost(chosen.text, problem, card, 0)) / best.cost_us
   sum = sum + math.log(losses[i])
end
table.sort(losses)
print(("%d problems, by the model: %.2f %% slower in the mean, 99th percentile %.1f %%, worst %.1f %%"):format(
   problems, 100 * (math.exp(sum / problems) - 1), 100 * (losses[math.ceil(0.99 * problems)] - 1),
   100 * (losses[problems] - 1)))
