//! The same store without bypassing the cache, and without demands on alignment.
//!
//! A value goes to its record by the instruction that stores it. The record is aligned to eight
//! bytes only and is read soon, so there the aligned and the non-temporal forms give way to plain
//! ones that write the same bytes.

use iced_x86::Code;

/// The instruction that writes the same bytes through the cache, with the same demands on alignment. The stores of a thread
/// that go through the cache are seen in their order.
pub(crate) fn cached_variant(code: Code) -> Code {
    use Code as C;
    match code {
        C::Movnti_m32_r32 | C::Movdiri_m32_r32 => C::Mov_rm32_r32,
        C::Movnti_m64_r64 | C::Movdiri_m64_r64 => C::Mov_rm64_r64,
        C::Movntps_m128_xmm => C::Movaps_xmmm128_xmm,
        C::Movntpd_m128_xmm => C::Movapd_xmmm128_xmm,
        C::Movntdq_m128_xmm => C::Movdqa_xmmm128_xmm,
        C::Movntq_m64_mm => C::Movq_mmm64_mm,
        C::Movntss_m32_xmm => C::Movss_xmmm32_xmm,
        C::Movntsd_m64_xmm => C::Movsd_xmmm64_xmm,
        C::VEX_Vmovntps_m128_xmm => C::VEX_Vmovaps_xmmm128_xmm,
        C::VEX_Vmovntps_m256_ymm => C::VEX_Vmovaps_ymmm256_ymm,
        C::VEX_Vmovntpd_m128_xmm => C::VEX_Vmovapd_xmmm128_xmm,
        C::VEX_Vmovntpd_m256_ymm => C::VEX_Vmovapd_ymmm256_ymm,
        C::VEX_Vmovntdq_m128_xmm => C::VEX_Vmovdqa_xmmm128_xmm,
        C::VEX_Vmovntdq_m256_ymm => C::VEX_Vmovdqa_ymmm256_ymm,
        C::EVEX_Vmovntps_m128_xmm => C::EVEX_Vmovaps_xmmm128_k1z_xmm,
        C::EVEX_Vmovntps_m256_ymm => C::EVEX_Vmovaps_ymmm256_k1z_ymm,
        C::EVEX_Vmovntps_m512_zmm => C::EVEX_Vmovaps_zmmm512_k1z_zmm,
        C::EVEX_Vmovntpd_m128_xmm => C::EVEX_Vmovapd_xmmm128_k1z_xmm,
        C::EVEX_Vmovntpd_m256_ymm => C::EVEX_Vmovapd_ymmm256_k1z_ymm,
        C::EVEX_Vmovntpd_m512_zmm => C::EVEX_Vmovapd_zmmm512_k1z_zmm,
        C::EVEX_Vmovntdq_m128_xmm => C::EVEX_Vmovdqa32_xmmm128_k1z_xmm,
        C::EVEX_Vmovntdq_m256_ymm => C::EVEX_Vmovdqa32_ymmm256_k1z_ymm,
        C::EVEX_Vmovntdq_m512_zmm => C::EVEX_Vmovdqa32_zmmm512_k1z_zmm,
        other => other,
    }
}

/// The instruction that writes the same bytes to a place of any alignment, through the cache.
pub(crate) fn plain_variant(code: Code) -> Code {
    use Code as C;
    match cached_variant(code) {
        C::Mov_moffs8_AL => C::Mov_rm8_r8,
        C::Mov_moffs16_AX => C::Mov_rm16_r16,
        C::Mov_moffs32_EAX => C::Mov_rm32_r32,
        C::Mov_moffs64_RAX => C::Mov_rm64_r64,
        C::Movaps_xmmm128_xmm => C::Movups_xmmm128_xmm,
        C::Movapd_xmmm128_xmm => C::Movupd_xmmm128_xmm,
        C::Movdqa_xmmm128_xmm => C::Movdqu_xmmm128_xmm,
        C::VEX_Vmovaps_xmmm128_xmm => C::VEX_Vmovups_xmmm128_xmm,
        C::VEX_Vmovaps_ymmm256_ymm => C::VEX_Vmovups_ymmm256_ymm,
        C::VEX_Vmovapd_xmmm128_xmm => C::VEX_Vmovupd_xmmm128_xmm,
        C::VEX_Vmovapd_ymmm256_ymm => C::VEX_Vmovupd_ymmm256_ymm,
        C::VEX_Vmovdqa_xmmm128_xmm => C::VEX_Vmovdqu_xmmm128_xmm,
        C::VEX_Vmovdqa_ymmm256_ymm => C::VEX_Vmovdqu_ymmm256_ymm,
        C::EVEX_Vmovaps_xmmm128_k1z_xmm => C::EVEX_Vmovups_xmmm128_k1z_xmm,
        C::EVEX_Vmovaps_ymmm256_k1z_ymm => C::EVEX_Vmovups_ymmm256_k1z_ymm,
        C::EVEX_Vmovaps_zmmm512_k1z_zmm => C::EVEX_Vmovups_zmmm512_k1z_zmm,
        C::EVEX_Vmovapd_xmmm128_k1z_xmm => C::EVEX_Vmovupd_xmmm128_k1z_xmm,
        C::EVEX_Vmovapd_ymmm256_k1z_ymm => C::EVEX_Vmovupd_ymmm256_k1z_ymm,
        C::EVEX_Vmovapd_zmmm512_k1z_zmm => C::EVEX_Vmovupd_zmmm512_k1z_zmm,
        C::EVEX_Vmovdqa32_xmmm128_k1z_xmm => C::EVEX_Vmovdqu32_xmmm128_k1z_xmm,
        C::EVEX_Vmovdqa32_ymmm256_k1z_ymm => C::EVEX_Vmovdqu32_ymmm256_k1z_ymm,
        C::EVEX_Vmovdqa32_zmmm512_k1z_zmm => C::EVEX_Vmovdqu32_zmmm512_k1z_zmm,
        C::EVEX_Vmovdqa64_xmmm128_k1z_xmm => C::EVEX_Vmovdqu64_xmmm128_k1z_xmm,
        C::EVEX_Vmovdqa64_ymmm256_k1z_ymm => C::EVEX_Vmovdqu64_ymmm256_k1z_ymm,
        C::EVEX_Vmovdqa64_zmmm512_k1z_zmm => C::EVEX_Vmovdqu64_zmmm512_k1z_zmm,
        other => other,
    }
}

/// The instruction that loads or stores the same value with an ordinary memory operand: those with
/// a 64-bit absolute address have none.
pub(crate) fn addressable_variant(code: Code) -> Code {
    use Code as C;
    match code {
        C::Mov_moffs8_AL | C::Mov_moffs16_AX | C::Mov_moffs32_EAX | C::Mov_moffs64_RAX => {
            plain_variant(code)
        }
        C::Mov_AL_moffs8 => C::Mov_r8_rm8,
        C::Mov_AX_moffs16 => C::Mov_r16_rm16,
        C::Mov_EAX_moffs32 => C::Mov_r32_rm32,
        C::Mov_RAX_moffs64 => C::Mov_r64_rm64,
        other => other,
    }
}
