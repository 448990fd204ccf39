int main(void)
{
	/* Größe */ count = 1; // ÿ
}
