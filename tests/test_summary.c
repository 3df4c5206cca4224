/* The statistics of a benchmark, compared with values computed by hand and from tables of Student's t. */
#include <math.h>
#include "check.h"
#include "tuner/bench/summary.h"

static bool near(double value, double wanted, double relative)
{
    return fabs(value - wanted) <= relative * fabs(wanted);
}

static void test_moments(void)
{
    double samples[] = {9, 2, 4, 4, 5, 4, 5, 7}; /* squares around 5: 16+9+1+1+0+1+0+4 = 32 */
    const fa2i_summary s = fa2i_summary_of(samples, 8);
    CHECK(s.n == 8 && s.mean == 5 && s.max == 9);
    CHECK(near(s.sd, sqrt(32.0 / 7), 1e-12));
    CHECK(near(s.ci95, 2.3646 * sqrt(32.0 / 7 / 8), 1e-3)); /* t at 7 degrees of freedom */
    CHECK(s.order.min == 2 && s.order.q1 == 4 && s.order.median == 4.5 && s.order.q3 == 5.5);
}

static void test_few(void)
{
    double one[] = {3};
    const fa2i_summary none = fa2i_summary_of(one, 0), single = fa2i_summary_of(one, 1);
    CHECK(none.n == 0 && none.mean == 0 && none.ci95 == 0);
    CHECK(single.mean == 3 && single.sd == 0 && single.ci95 == 0 && single.order.median == 3);
    CHECK(!fa2i_summary_is_wide(&single));
}

static void test_student(void)
{
    static const struct {
        size_t freedom;
        double t;
    } table[] = {{1, 12.706}, {2, 4.303},  {4, 2.776},  {5, 2.571},  {6, 2.447},
                 {9, 2.262},  {19, 2.093}, {29, 2.045}, {99, 1.984}, {100000, 1.960}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        CHECK(near(fa2i_student_975(table[i].freedom), table[i].t, 1e-3));
}

static void test_wide(void)
{
    double calm[100], torn[100], outliers[100];
    for (int i = 0; i < 100; i++) {
        calm[i] = 100 + 0.02 * i;
        torn[i] = i % 2 == 0 ? 100 : 110; /* two clocks */
        outliers[i] = i < 96 ? 100 : 300; /* quartiles see nothing; the mean does */
    }
    const fa2i_summary a = fa2i_summary_of(calm, 100), b = fa2i_summary_of(torn, 100),
                       c = fa2i_summary_of(outliers, 100);
    CHECK(!fa2i_summary_is_wide(&a));
    CHECK(fa2i_summary_is_wide(&b));
    CHECK(c.order.q1 == c.order.q3 && fa2i_summary_is_wide(&c));
}

int main(void)
{
    test_moments();
    test_few();
    test_student();
    test_wide();
    return check_done();
}
