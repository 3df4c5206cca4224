-- Rates and limits of an SM, by compute capability. Also a reference card for each SM, for use without a GPU.
--
-- Rates are per SM and clock. Sources:
--   [cuda]      CUDA C++ programming guide, compute capabilities; for limits also CCCL, which agrees
--               (github.com/NVIDIA/cccl, libcudacxx/include/cuda/__device/arch_traits.h)
--   [paper]     NVIDIA's architecture white papers and data sheets
--   [measured]  on an H200
--   [derived]   from the others
-- Other sources are named where they are used.
local axes_of = require("core.axes")

local M = {}

-- Fields, with the unit and the source that hold for every row:
--   smem_block  bytes of shared memory that one block may have (opt-in)                     [cuda]
--   smem_sm     bytes of shared memory per SM: those of a block and the reserved ones       [cuda]
--   reserved    bytes of shared memory that the system takes for each resident block        [cuda]
--   grain       bytes; shared memory is allocated in multiples of this      [cuda occupancy header]
--   warps       resident warps per SM                                                      [cuda]
--   blocks      resident blocks per SM                                                     [cuda]
--   tensor      FLOP, fp16 or bf16 products with fp32 sums, m16n8k16 (sm_75: m16n8k8)       [paper]
--   tensor_k8   the same by m16n8k8. Both are rates of cards that sum in fp32 as fast as in fp16 (see slowdown)
--   int8        the same by s8 products, m16n8k32 (sm_75: m8n8k16). GeForce cards have the whole rate    [paper]
--   wgmma       the same by wgmma, if the SM has it                                         [paper]
--   smem_rate   bytes of shared memory traffic                                  [paper; 75 derived]
--   ex2         ex2.approx results                                            [cuda; 90 measured]
--   fp32        fp32 results                                                               [cuda]
-- Values that have other sources:
--   sm_90                tensor and tensor_k8 are 631 and 455 TFLOPS over 132 SMs at 1.98 GHz [measured]
--   sm_80 ... 89, 12x    tensor_k8 with the ratio of sm_90 [derived]
--   sm_90 and newer      int8 is twice tensor [derived]
--   sm_100, 103, 110     fa2 does not use their own products (tcgen05). The rate of mma.sync there is not published;
--                        the table has sm_90's [derived]
--   sm_103               twice the ex2 of sm_100 [paper]
--   sm_88                its limits are public and equal sm_86's (CCCL and the occupancy header). Its rates are not
--                        public; the table has sm_86's [derived]
local turing = {reserved = 0, grain = 256, smem_rate = 64, ex2 = 16, fp32 = 64}
local ampere = {reserved = 1024, grain = 128, smem_rate = 128, ex2 = 16, fp32 = 128}
local hopper = axes_of.add_names({smem_block = 232448, warps = 64, blocks = 32, tensor = 2414, tensor_k8 = 1741},
                                 ampere)
-- SMs with the tensor cores of sm_80, and with half of them.
local large = axes_of.add_names({smem_block = 166912, tensor = 2048, tensor_k8 = 1475}, ampere)
local small = axes_of.add_names({smem_block = 101376, warps = 48, blocks = 24, tensor = 1024, tensor_k8 = 737}, ampere)

local rows = {
   [75] = {turing, smem_block = 65536, warps = 32, blocks = 16, tensor = 1024, tensor_k8 = 1024},
   [80] = {large, warps = 64, blocks = 32, fp32 = 64},
   [86] = {small, blocks = 16},
   [87] = {large, warps = 48, blocks = 16},
   [88] = {small, blocks = 16},
   [89] = {small},
   [90] = {hopper, wgmma = 4096},
   [100] = {hopper},
   [103] = {hopper, ex2 = 32},
   [110] = {hopper, warps = 48, blocks = 24},
   [120] = {small},
   [121] = {small},
}
local known = {} -- their SMs in ascending order
for sm, own in pairs(rows) do
   local row = axes_of.add_names({}, own[1], own)
   row[1] = nil
   row.smem_sm, row.int8 = row.smem_block + row.reserved, 2 * row.tensor
   rows[sm], known[#known + 1] = row, sm
end
table.sort(known)

-- One card per SM, as its driver reports it: a common card, or the one that was available.
local cards = { -- name, SMs, bytes of L2, clock in kHz, bandwidth in bytes per second
   [75] = {"Tesla T4", 40, 4194304, 1590000, 320000000000},
   [80] = {"NVIDIA A100-SXM4-80GB", 108, 41943040, 1410000, 2039000000000},
   [86] = {"NVIDIA GeForce RTX 3060", 28, 2359296, 1777000, 360000000000},
   [87] = {"Orin", 16, 4194304, 1300000, 204800000000},
   -- No public product reports 8.8. This row has the sizes of sm_86's card, under a name that no driver reports.
   [88] = {"Ampere 8.8, no public card", 28, 2359296, 1777000, 360000000000},
   [89] = {"NVIDIA L4", 58, 50331648, 2040000, 300000000000},
   [90] = {"NVIDIA H200", 132, 62914560, 1980000, 4800000000000},
   -- As its driver reports it, except the clock [paper].
   [100] = {"NVIDIA B200", 148, 132644864, 1965000, 7672000000000},
   -- Its dense fp16 rate is the B200's, so SMs and clock are, too. Memory: [paper]. L2: like the B200 [derived].
   [103] = {"NVIDIA B300", 148, 132644864, 1965000, 8000000000000},
   -- As its driver reports it, except clock and memory [paper].
   [110] = {"NVIDIA Thor", 20, 33554432, 1575000, 273000000000},
   -- As its driver reports it, except clock and memory [paper].
   [120] = {"NVIDIA GeForce RTX 5090", 170, 100663296, 2407000, 1792000000000},
   -- 6144 fp32 lanes, 31 TFLOPS, 24 MB of L2, 273 GB/s [paper].
   [121] = {"NVIDIA GB10", 48, 25165824, 2520000, 273000000000},
}
for sm, card in pairs(cards) do
   cards[sm] = {
      arch = sm, name = card[1], sm_count = card[2], l2_bytes = card[3], clock_khz = card[4], bandwidth_bytes = card[5],
      smem_block_bytes = rows[sm].smem_block, smem_sm_bytes = rows[sm].smem_sm,
   }
end

-- Returns the card that stands for an SM; nil and a text with the known SMs for any other.
function M.reference_card(sm)
   local card = cards[sm]
   if not card then
      return nil, "there is no reference card for sm_" .. sm .. "; known: sm_"
         .. table.concat(known, ", sm_")
   end
   return axes_of.add_names({}, card)
end

-- Returns how many times slower a card's products are than the table says, with fp32 sums and with fp16 sums. GeForce
-- cards of these SMs sum in fp32 at half rate; workstation and server cards do not [paper]. GTX 16xx report 7.5 and
-- have no tensor cores: fp16 units with 128 lanes compute their products [derived].
local function slowdown(sm, name)
   if sm == 75 and name:find("GTX 16", 1, true) then
      return 4, 4
   elseif (sm == 75 or sm == 86 or sm == 89 or sm == 120) and name:find("GeForce", 1, true) then
      return 2, 1
   end
   return 1, 1
end

-- Returns the arch of a card {arch, name, sm_count, smem_block_bytes, smem_sm_bytes, l2_bytes, clock_khz,
-- bandwidth_bytes, generic}: the row above with the card's own rates, plus
--   tensor_fp16  tensor with fp16 sums, and tensor_fp16_k8 likewise
--   fp8          tensor with e4m3 products and fp32 sums, where the SM has them (paths/mma_sync.lua) [paper]
--   sm, sm_count
--   regs         32-bit registers per SM
--   clock        clocks per us
--   dram, l2     bytes per us
--   l2_bytes
--   launch_us    us of a launch of a kernel that does nothing
--   generic      true: the card takes no code that is for one SM alone
--   family_sm    the row's SM, by which families decide
-- An unknown SM gets the row of the newest known SM below it, and the card's own sizes. A known SM gets the smaller of
-- both sizes, so that a card that plays an older SM gets that SM's candidates. Returns nil and the reason below sm_75.
function M.describe(card)
   local base
   for _, sm in ipairs(known) do
      base = sm <= card.arch and sm or base
   end
   if not base then
      return nil, "sm_" .. card.arch .. " is older than sm_75, the oldest that is supported"
   end
   local arch = axes_of.add_names({
      sm = card.arch, family_sm = base, sm_count = math.max(card.sm_count, 1), generic = card.generic or false,
      regs = 65536, launch_us = 1.7, -- [measured], for all SMs
   }, rows[base])
   local smem_block, smem_sm = card.smem_block_bytes, card.smem_sm_bytes
   local exact = card.arch == base
   arch.smem_block = exact and math.min(arch.smem_block, smem_block) or smem_block
   arch.smem_sm = exact and math.min(arch.smem_sm, smem_sm) or smem_sm
   local slower, slower_fp16 = slowdown(base, card.name)
   arch.tensor_fp16, arch.tensor_fp16_k8 = arch.tensor / slower_fp16, arch.tensor_k8 / slower_fp16
   arch.tensor, arch.tensor_k8 = arch.tensor / slower, arch.tensor_k8 / slower
   arch.int8 = arch.int8 / slower_fp16
   arch.fp8 = 2 * arch.tensor
   local clock_khz = card.clock_khz > 0 and card.clock_khz or cards[base].clock_khz
   local dram = card.bandwidth_bytes > 0 and card.bandwidth_bytes or cards[base].bandwidth_bytes
   arch.clock = clock_khz / 1000
   arch.dram = dram / 1e6
   -- 32 bytes per clock and SM are about half of what an SM can take in. They are about what the L2 of these chips
   -- delivers to all SMs at once [derived].
   arch.l2 = 32 * arch.sm_count * arch.clock
   arch.l2_bytes = card.l2_bytes
   -- Cards with equal descriptions have equal keys.
   arch.key = table.concat({arch.sm, arch.sm_count, arch.smem_block, arch.smem_sm, arch.tensor,
                            arch.clock, arch.dram, arch.l2_bytes}, " ")
   return arch
end

return M
