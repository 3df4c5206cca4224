-- What the default rule loses by asking the cost model about rounded sizes (fa2i_problem_rounded,
-- runtime/base/problem.h): for random problems on four SMs, the model's time of the kernel chosen so
-- over that of its first choice.
--
--   build/tests/run_lua tests/bench/rounding.lua [PROBLEMS]
--
-- from the top of the source tree.
local fa2 = fa2 -- luacheck: ignore 113 (tests/bench/run_lua.c)
local generator = require("init")

local sms, dims = {75, 80, 86, 90}, {32, 64, 80, 128}
local problems = tonumber(arg[1]) or 500
math.randomseed(20)

local function log_uniform(least, most)
   return math.floor(least * (most / least) ^ math.random() + 0.5)
end

local function random_problem()
   local seq = log_uniform(16, 8192)
   local heads_kv = 2 ^ math.random(0, 4) | 0
   return fa2.problem({
      op = "forward", dtype = "fp16", batch = log_uniform(1, 32), heads_q = heads_kv * (2 ^ math.random(0, 2) | 0),
      heads_kv = heads_kv, seq_q = math.random() < 0.3 and 1 or seq, seq_k = seq, head_dim = dims[math.random(#dims)],
      causal = math.random(0, 1),
   })
end

local sum, worst = 0, 1
for _ = 1, problems do
   local problem, card = random_problem(), assert(generator.card(sms[math.random(#sms)]))
   local best = assert(generator.candidates(problem, card))[1]
   local chosen = assert(generator.candidates(fa2.rounded(problem), card))[1]
   local loss = assert(generator.cost(chosen.text, problem, card, 0)) / best.cost_us
   sum, worst = sum + math.log(loss), math.max(worst, loss)
end
print(string.format("%d problems: %.1f %% slower in the geometric mean, %.1f %% at worst, by the model", problems,
                    100 * (math.exp(sum / problems) - 1), 100 * (worst - 1)))
